----------------------------- MODULE UnitRecords -----------------------------
(***************************************************************************)
(* What Units leaves out of the units table, and of items that a unit has  *)
(* not read: leases that are renewed side by side, units that are saved    *)
(* under an owner, records that are forgotten, newer versions.  Each       *)
(* request may arrive late, and more than once.                            *)
(***************************************************************************)
EXTENDS UnitTables

CONSTANTS
  Kinds,   \* of requests that are sent
  Last,    \* the greatest number of a renewal, of a try, of a moment
  Owners,  \* of saved units
  Copies   \* how many requests arrive late, or never, in one behaviour

VARIABLES
  sent,    \* by kind, the number of the last request
  told,    \* by kind, the number of the last one that was answered
  late,    \* copies of requests, and how many there were
  wrong    \* the kinds of requests that have ended a unit of another owner, or closed a record after another end
vars == <<stored, sent, told, late, wrong>>

The == CHOOSE u \in Units : TRUE
Item == CHOOSE k \in Keys : TRUE

Choices(op) ==
  LET r == Request(op, The)
      n == sent[op] + 1
      h == head[The]
  IN
  CASE op = "Renew" -> {[r EXCEPT !.lease = n]}
    [] op \in {"AddKeys", "PutSavedRow"} -> {[r EXCEPT !.number = n]}
    [] op = "PutRowOfOwner" -> {[r EXCEPT !.until = n]}
    [] op = "RollBack" -> {[r EXCEPT !.final = n]}
    [] op = "RollBackOfOwner" -> {[r EXCEPT !.owner = o, !.final = Last + n] : o \in Owners}
    [] op = "Close" -> IF h # None /\ h.state = "rolledBack" THEN {[r EXCEPT !.final = h.final]} ELSE {}
    [] op = "Forget" -> IF h # None /\ h.isClosed THEN {r} ELSE {}
    [] op = "CommitNatively" ->
         {[r EXCEPT !.keys = {Item}, !.seen = Item :> None, !.writes = Item :> "put"]}
    [] OTHER -> {r}

IsWrong(r) ==
  /\ head[The] # None
  /\ \/ r.op = "RollBackOfOwner" /\ head[The].owner # r.owner
     \/ r.op = "Close" /\ head[The].final # r.final  \* items of it may have marks
Arrive(r) ==
  IF Allows(r)
  THEN /\ item' = [k \in Keys |-> NewItem(k, r)] /\ head' = [head EXCEPT ![The] = NewHead(r)] /\ row' = NewRow(r)
       /\ wrong' = IF IsWrong(r) THEN wrong \cup {r.op} ELSE wrong
       /\ UNCHANGED <<saved, receipt>>
  ELSE UNCHANGED <<stored, wrong>>

Send(op) ==
  /\ sent[op] < Last
  /\ \E r \in Choices(op) :
       /\ sent' = [sent EXCEPT ![op] = @ + 1]
       /\ \/ Arrive(r) /\ told' = [told EXCEPT ![op] = sent'[op]] /\ UNCHANGED late
          \/ /\ late.count < Copies /\ late' = [count |-> late.count + 1, are |-> late.are \cup {r}]
             /\ UNCHANGED <<stored, told, wrong>>
ArriveLate(r) == Arrive(r) /\ late' = [late EXCEPT !.are = @ \ {r}] /\ UNCHANGED <<sent, told>>
OtherOwner ==  \* it is saved again, under another owner, or none
  /\ head[The] # None /\ head[The].state = "pending"
  /\ \E o \in Owners \cup {None} : head' = [head EXCEPT ![The].owner = o]
  /\ UNCHANGED <<item, saved, receipt, row, sent, told, late, wrong>>
Upgrade ==  \* a newer version goes on with it
  /\ head[The] # None /\ head[The].state = "pending" /\ head' = [head EXCEPT ![The].format = 2]
  /\ UNCHANGED <<item, saved, receipt, row, sent, told, late, wrong>>
TimeToLive ==
  /\ head[The] # None /\ head[The].isClosed /\ head' = [head EXCEPT ![The] = None]
  /\ UNCHANGED <<item, saved, receipt, row, sent, told, late, wrong>>

Init ==
  /\ \E v \in {Foreign, Unversioned} : item = [k \in Keys |-> Bare(v)]
  /\ \E o \in Owners \cup {None} : head = [u \in Units |-> [Pending EXCEPT !.owner = o]]
  /\ saved = None /\ receipt = <<>> /\ row = [keys |-> 0, saved |-> 0, until |-> 0]
  /\ sent = [op \in Kinds |-> 0] /\ told = sent /\ late = [count |-> 0, are |-> {}] /\ wrong = {}
Next ==
  \/ \E op \in Kinds : Send(op)
  \/ \E r \in late.are : ArriveLate(r)
  \/ OtherOwner \/ Upgrade \/ TimeToLive
Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
(* What is promised.                                                       *)

NoKeysForgotten == [][row'.keys >= row.keys]_vars
NoLeaseShortened ==
  [][\A u \in Units : head[u] # None /\ head'[u] # None => head'[u].lease >= head[u].lease]_vars
WhatWasWrittenStays ==
  /\ "PutSavedRow" \in Kinds => row.saved >= told["PutSavedRow"]
  /\ "PutRowOfOwner" \in Kinds => row.until >= told["PutRowOfOwner"]
OnlyUnitsOfTheOwner == "RollBackOfOwner" \notin wrong
OnlyAfterTheEndThatWasSeen == "Close" \notin wrong
NewerFormatStays ==
  [][\A u \in Units :
       head[u] # None /\ head[u].format > 1 /\ head'[u] # None => head'[u].state = head[u].state]_vars
EachHeadHasAState == \A u \in Units : head[u] # None => head[u].state # "no state"
ForeignStays == [][\A k \in Keys : item[k].version = Foreign => item'[k].version = Foreign]_vars
=============================================================================
