------------------------------- MODULE Units -------------------------------
(***************************************************************************)
(* Units of work, as docs/units.md describes them: native and marked       *)
(* commits, what units do about each other's marks, ends that any process  *)
(* may bring about, names, and saved units with several coordinators.      *)
(* Requests and conditions have their names from the code.  `make spec`    *)
(* checks it, and checks it without each condition.                        *)
(***************************************************************************)
EXTENDS UnitTables

CONSTANTS
  Reads,         \* by unit, the keys that it reads
  Writes,        \* by unit, the keys that it writes, with "put" or "delete"; it reads them, too
  Name,          \* by unit, its name, or None
  Coordinators,  \* the units that go on with the saved unit, one after the other
  Marked,        \* the units that commit by marks; the others commit natively
  Plain,         \* the items that exist, and that no unit has written
  GiveUps,       \* how often a process asks for the outcome of a name, and thereby gives it up
  Slow,          \* how many requests may be on their way at once; the others arrive at once
  Faults,        \* each happens at most once
  MostFaults     \* of all of them

VARIABLES
  me,      \* by unit: what its coordinator knows, and the request that it has sent
  late,    \* copies of requests, which arrive at any time, or never
  faults,  \* those that may still happen
  truth    \* the units that are committed, the versions that they have left, and what must never happen
vars == <<stored, me, late, faults, truth>>

AllReads(u) == Reads[u] \cup DOMAIN Writes[u]
Written(u, k) == IF Writes[u][k] = "delete" THEN Absent ELSE u
Names == {Name[u] : u \in Units} \ {None}

----------------------------------------------------------------------------
(* A request arrives.                                                      *)

IsWrong(r) ==  \* what must never be decided
  CASE r.op \in Deciding -> \/ r.unit \in truth.committed \cup truth.barred
                            \/ r.unit \in Coordinators /\ (saved.state # "pending" \/ saved.coordinator # r.unit)
    [] r.op = "RollBackExpired" -> IF head[r.unit] = None THEN FALSE ELSE ~head[r.unit].isOver
    [] r.op = "Correct" ->
         IF head[r.unit] = None THEN TRUE ELSE head[r.unit].state # "committed" \/ head[r.unit].isClosed
    [] OTHER -> FALSE
Truth(r) ==
  [truth EXCEPT
     !.isWrong = @ \/ IsWrong(r),
     !.committed = IF r.op \in Deciding THEN @ \cup {r.unit} ELSE @,
     !.left = CASE r.op \in Deciding ->
                     [k \in Keys |-> IF k \in DOMAIN Writes[r.unit] THEN Written(r.unit, k) ELSE @[k]]
                [] r.op = "Correct" -> [k \in Keys |-> IF k \in r.keys THEN NewItem(k, r).version ELSE @[k]]
                [] OTHER -> @,
     !.givenUp = IF r.op = "GiveUpName" THEN @ + 1 ELSE @,
     !.barred = IF r.op # "GiveUpName" THEN @
                ELSE @ \cup {u \in Units : Name[u] = Name[r.unit] /\ me[u].pc # "begins"}]

Arrive(r) ==
  IF Allows(r)
  THEN /\ item' = [k \in Keys |-> NewItem(k, r)]
       /\ head' = [head EXCEPT ![r.unit] = NewHead(r)]
       /\ receipt' = NewReceipt(r) /\ saved' = NewSaved(r) /\ row' = NewRow(r) /\ truth' = Truth(r)
  ELSE UNCHANGED <<stored, truth>>

----------------------------------------------------------------------------
(* What a unit's coordinator u may send, and what it makes of the reply.   *)

Sweeper == 0
Processes == Units \cup {Sweeper}
IsOver(x) == head[x] # None /\ head[x].state = "pending" /\ head[x].isOver
IsClosed(x) == IF head[x] = None THEN TRUE ELSE head[x].isClosed
IsEnded(x) == head[x] = None \/ head[x].isClosed \/ head[x].state = "rolledBack"
On(op, x, k) == [Request(op, x) EXCEPT !.keys = {k}]
ToFinish(x, k) == [On("Finish", x, k) EXCEPT !.writes = Writes[x]]
ToCorrect(x, k) ==  \* an operator does, if the service refuses the new value
  IF "refused" \in Faults THEN {[On("Correct", x, k) EXCEPT !.kind = item[k].mark.kind, !.number = -10 - x]} ELSE {}

ToRollBack(x) == IF IsOver(x) THEN {[Request("RollBackExpired", x) EXCEPT !.lease = head[x].lease]} ELSE {}
ToEnd(x, k) ==  \* what a process does about a mark of x, by the record of x
  IF IsOver(x) THEN ToRollBack(x)
  ELSE IF IsEnded(x) THEN {[On("Unmark", x, k) EXCEPT !.kind = item[k].mark.kind]}
  ELSE IF head[x].state = "committed" THEN {ToFinish(x, k)} \cup ToCorrect(x, k) ELSE {}
Met(u) == {k \in AllReads(u) : ~NoMark(k) /\ item[k].mark.unit # u}
State(x) == IF head[x] = None THEN "none" ELSE head[x].state
ToMeet(u) ==
  UNION {LET x == item[k].mark.unit
         IN  ToEnd(x, k) \cup IF State(x) = "pending" /\ u < x THEN {Request("RollBack", x)} ELSE {} : k \in Met(u)}

ToMark(u, k) ==
  [On(IF me[u].seen[k] \in {Absent, Unversioned} THEN "MarkWithHead" ELSE "Mark", u, k) EXCEPT
     !.seen = me[u].seen, !.writes = Writes[u]]
Committing(op, u, keys) ==
  [Request(op, u) EXCEPT !.keys = keys, !.seen = me[u].seen, !.writes = Writes[u], !.name = Name[u],
                         !.receipt = me[u].receipt, !.isResumed = u \in Coordinators, !.rev = me[u].rev]
OfSavedUnit(op, u) == [Request(op, u) EXCEPT !.rev = me[u].rev]
ToSave(u) == IF u \in Coordinators /\ me[u].sure THEN {OfSavedUnit("Save", u), OfSavedUnit("EndSaved", u)} ELSE {}
MyMarks(u) == {k \in Keys : ~NoMark(k) /\ item[k].mark.unit = u}

NoMarkComes(x) == \A r \in late \cup {me[x].ask} : r = None \/ r.unit # x \/ r.op \notin {"Mark", "MarkWithHead"}
ToClose(x) ==  \* ten minutes after its end
  IF State(x) \in {"committed", "rolledBack"} /\ ~IsClosed(x) /\ head[x].isOver /\ MyMarks(x) = {} /\ NoMarkComes(x)
  THEN {Request("Close", x)} ELSE {}
OnTheirWay == (late \cup {me[p].ask : p \in Processes}) \ {None}
IsGivenUp == \E r \in OnTheirWay : r.op = "GiveUpName"
ToGiveUp(x) ==  \* one after the other, since each has a number of its own
  IF Name[x] = None \/ truth.givenUp = GiveUps \/ IsGivenUp THEN {}
  ELSE LET is == receipt[Name[x]]
       IN  IF (IF is = None THEN FALSE ELSE is.state = "committed") THEN {}
           ELSE {[Request("GiveUpName", x) EXCEPT !.name = Name[x], !.receipt = is, !.number = -truth.givenUp - 1]}
ToSweep ==
  UNION {IF NoMark(k) THEN {} ELSE ToEnd(item[k].mark.unit, k) : k \in Keys}
  \cup UNION {ToRollBack(x) \cup ToClose(x) \cup ToGiveUp(x) : x \in Units}

IsLeaseOver(u) == IF head[u] = None THEN TRUE ELSE head[u].isOver  \* by its own clock
ToGoOn(u) ==
  (IF IsLeaseOver(u) THEN {} ELSE {ToMark(u, k) : k \in DOMAIN Writes[u] \ me[u].placed})
  \cup (IF IsLeaseOver(u) \/ head[u].lease > 1 THEN {} ELSE {[Request("Renew", u) EXCEPT !.lease = head[u].lease + 1]})
  \cup {Request("RollBack", u)}

Choices(u) ==
  CASE me[u].pc = "sweeps" -> ToSweep
    [] me[u].pc = "claims" -> {[Request("Claim", u) EXCEPT !.rev = saved.rev]}
    [] me[u].pc = "reads" -> ToMeet(u)
    [] me[u].pc = "commits" -> {Committing("CommitNatively", u, AllReads(u))} \cup ToMeet(u) \cup ToSave(u)
    [] me[u].pc = "opens" -> {[Request("Open", u) EXCEPT !.lease = 1]} \cup ToSave(u)
    [] me[u].pc = "marks" -> ToGoOn(u) \cup ToMeet(u)
    [] me[u].pc = "decides" -> {Committing("Commit", u, AllReads(u) \ DOMAIN Writes[u])} \cup ToMeet(u)
    [] me[u].pc = "aborts" -> {Request("RollBack", u)}
    [] me[u].pc = "unmarks" -> {[On("Unmark", u, k) EXCEPT !.kind = item[k].mark.kind] : k \in MyMarks(u)}
    [] me[u].pc = "finishes" -> {ToFinish(u, k) : k \in me[u].placed}
    [] me[u].pc = "closes" -> {Request("Close", u)}
    [] OTHER -> {}

End(k, told) == [k EXCEPT !.told = told, !.pc = "done", !.placed = {}]
Decided(k) == [k EXCEPT !.told = "committed", !.pc = "finishes"]
IsMine(u) ==
  \/ u \in {item[k].version : k \in DOMAIN Writes[u]}
  \/ IF Name[u] = None THEN FALSE ELSE IF receipt[Name[u]] = None THEN FALSE ELSE receipt[Name[u]].by = u
IsBlockedByMarks(u, r) == \A c \in Requires(r) \ ({"UNMARKED", "ABSENT"} \cup Without) : Holds(c, r)
                          /\ \A k \in r.keys : item[k].version = r.seen[k]

Replied(u, r, isApplied) ==  \* of a request of its own
  LET k == [me[u] EXCEPT !.ask = None]
      h == head'[u]
  IN
  CASE r.unit # u -> k
    [] r.op = "Claim" -> IF isApplied THEN [k EXCEPT !.pc = "reads", !.rev = r.rev + 1] ELSE End(k, "changed")
    [] r.op = "Save" -> End(k, IF isApplied THEN "saved" ELSE "changed")
    [] r.op = "EndSaved" -> End(k, IF isApplied THEN "rolledBack" ELSE "changed")
    [] r.op = "CommitNatively" ->
         IF isApplied \/ IsMine(u) THEN End(k, "committed")
         ELSE IF ~k.sure THEN End(k, "unknown")
         ELSE IF IsBlockedByMarks(u, r) THEN k ELSE End(k, "rolledBack")
    [] r.op = "Open" -> [k EXCEPT !.pc = "marks"]
    [] r.op \in {"Mark", "MarkWithHead"} ->
         LET key == CHOOSE j \in r.keys : TRUE
             mark == item'[key].mark
         IN  IF isApplied \/ (mark # None /\ mark.unit = u) THEN [k EXCEPT !.placed = @ \cup {key}]
             ELSE IF IsBlockedByMarks(u, r) THEN k ELSE [k EXCEPT !.pc = "aborts"]
    [] r.op = "Renew" ->
         LET isRenewed == h # None /\ h.state = "pending" /\ h.lease >= r.lease  \* by this request, or by its copy
         IN  IF isRenewed THEN k ELSE [k EXCEPT !.pc = "aborts"]
    [] r.op = "Commit" ->
         IF isApplied \/ (h # None /\ h.state = "committed") THEN Decided(k)
         ELSE IF IsBlockedByMarks(u, r) THEN k ELSE [k EXCEPT !.pc = "aborts"]
    [] r.op = "RollBack" ->
         IF isApplied \/ (h # None /\ h.state = "rolledBack") THEN [k EXCEPT !.told = "rolledBack", !.pc = "unmarks"]
         ELSE IF h # None /\ h.state = "committed" THEN Decided(k)
         ELSE End(k, "unknown")
    [] r.op = "Finish" -> [k EXCEPT !.placed = @ \ r.keys]
    [] r.op = "Close" -> [k EXCEPT !.pc = "done"]
    [] OTHER -> k

GoesOn(k, u) ==  \* steps without a request
  CASE k.pc = "marks" /\ DOMAIN Writes[u] \subseteq k.placed -> [k EXCEPT !.pc = "decides"]
    [] k.pc = "finishes" /\ k.placed = {} -> IF k.sure THEN [k EXCEPT !.pc = "closes"] ELSE [k EXCEPT !.pc = "done"]
    [] OTHER -> k

Once(f) == f \in faults /\ Cardinality(Faults \ faults) < MostFaults /\ faults' = faults \ {f}  \* a fault

Told(u, r) == me' = [me EXCEPT ![u] = GoesOn(Replied(u, r, Allows(r)), u)]
Send(u) ==
  /\ me[u].ask = None
  /\ \E r \in Choices(u) :
       LET asks == [me EXCEPT ![u].ask = r]
       IN \/ Arrive(r) /\ Told(u, r) /\ UNCHANGED <<late, faults>>
          \/ /\ Cardinality({p \in Processes : me[p].ask # None}) < Slow  \* on its way for a while
             /\ me' = asks /\ UNCHANGED <<stored, late, faults, truth>>
          \/ /\ Once("late")  \* its sender gives it up, and it comes later
             /\ late' = late \cup {r} /\ me' = [me EXCEPT ![u].sure = FALSE]
             /\ UNCHANGED <<stored, truth>>
          \/ /\ Once("repeat")  \* the reply is lost, and its sender repeats it
             /\ Arrive(r) /\ me' = [asks EXCEPT ![u].sure = FALSE] /\ UNCHANGED late
Perform(u) == me[u].ask # None /\ Arrive(me[u].ask) /\ Told(u, me[u].ask) /\ UNCHANGED <<late, faults>>

Read(u) ==
  /\ me[u].pc = "reads" /\ me[u].ask = None
  /\ \E k \in AllReads(u) \ DOMAIN me[u].seen :
       /\ IF NoMark(k) THEN TRUE ELSE IsEnded(item[k].mark.unit) \/ head[item[k].mark.unit].state = "pending"
       /\ LET seen == k :> item[k].version @@ me[u].seen
          IN  me' = [me EXCEPT ![u].seen = seen, ![u].pc =
                       IF DOMAIN seen # AllReads(u) THEN @ ELSE IF u \in Marked THEN "opens" ELSE "commits"]
  /\ UNCHANGED <<stored, late, faults, truth>>
Begin(u) ==
  /\ me[u].pc = "begins"
  /\ me' = [me EXCEPT ![u].pc = IF u \in Coordinators THEN "claims" ELSE "reads",
                      ![u].receipt = IF Name[u] = None THEN None ELSE receipt[Name[u]]]
  /\ UNCHANGED <<stored, late, faults, truth>>
GiveUp(u) ==  \* it has waited long enough for an older one
  /\ me[u].pc \in {"reads", "commits", "marks", "decides"} /\ me[u].ask = None /\ Met(u) # {}
  /\ me' = [me EXCEPT ![u] = IF @.pc \in {"marks", "decides"} THEN [@ EXCEPT !.pc = "aborts"]
                             ELSE End(@, IF @.sure THEN "rolledBack" ELSE "unknown")]
  /\ UNCHANGED <<stored, late, faults, truth>>
Unmarked(u) ==
  /\ me[u].pc = "unmarks" /\ MyMarks(u) = {} /\ me[u].ask = None /\ me' = [me EXCEPT ![u] = End(@, "rolledBack")]
  /\ UNCHANGED <<stored, late, faults, truth>>

----------------------------------------------------------------------------
(* What goes wrong, and time.                                              *)

Crash(u) ==
  /\ me[u].pc \notin {"done", "dead"} /\ Once("crash")
  /\ late' = late \cup ({me[u].ask} \ {None}) /\ me' = [me EXCEPT ![u].pc = "dead", ![u].ask = None, ![u].placed = {}]
  /\ UNCHANGED <<stored, truth>>
ArriveLate(r) == Arrive(r) /\ late' = late \ {r} /\ UNCHANGED <<me, faults>>
LeaseEnds(x) ==
  /\ head[x] # None /\ ~head[x].isOver /\ head' = [head EXCEPT ![x].isOver = TRUE]
  /\ UNCHANGED <<item, saved, receipt, row, me, late, faults, truth>>
TimeToLive(x) ==  \* a day after the end; no request lives as long, nor does a process between two attempts
  /\ head[x] # None /\ head[x].isClosed /\ (\A r \in OnTheirWay : r.unit # x) /\ head' = [head EXCEPT ![x] = None]
  /\ UNCHANGED <<item, saved, receipt, row, me, late, faults, truth>>
ReceiptEnds(n) ==  \* time to live has deleted the receipt of a name that was given up: it is free again
  /\ receipt[n] # None /\ receipt[n].state = "rolledBack" /\ ~IsGivenUp /\ Once("ttl")
  /\ receipt' = [receipt EXCEPT ![n] = None]
  /\ truth' = [truth EXCEPT !.barred = {u \in @ : Name[u] # n}] /\ UNCHANGED <<item, head, saved, row, me, late>>
WriteCarelessly(k) ==  \* a writer beside units gives the item a version of its own, and does not look for a mark
  /\ ~NoMark(k) /\ Once("careless writer")
  /\ item' = [item EXCEPT ![k].version = -1] /\ truth' = [truth EXCEPT !.left[k] = -1]
  /\ UNCHANGED <<head, saved, receipt, row, me, late>>
Over == \A u \in Units : me[u].pc \in {"done", "dead"} /\ me[u].ask = None
AllIsOver == Over /\ late = {} /\ (\A u \in Units : IsClosed(u)) /\ UNCHANGED vars

Init ==
  /\ item = [k \in Keys |-> Bare(IF k \in Plain THEN Unversioned ELSE Absent)]
  /\ head = [u \in Units |-> None] /\ row = [keys |-> 0, saved |-> 0, until |-> 0]
  /\ saved = [state |-> "pending", rev |-> 1, coordinator |-> None, format |-> 1]
  /\ receipt = [n \in Names |-> None] /\ late = {} /\ faults = Faults
  /\ me = [u \in Processes |->
             [pc |-> IF u = Sweeper THEN "sweeps" ELSE "begins", seen |-> <<>>, placed |-> {}, ask |-> None, rev |-> 0,
              receipt |-> None, sure |-> TRUE, told |-> None]]
  /\ truth = [committed |-> {}, barred |-> {}, givenUp |-> 0, isWrong |-> FALSE,
              left |-> [k \in Keys |-> item[k].version]]
Next ==
  \/ \E u \in Processes : Send(u) \/ Perform(u)
  \/ \E u \in Units : Begin(u) \/ Read(u) \/ GiveUp(u) \/ Unmarked(u) \/ Crash(u) \/ LeaseEnds(u) \/ TimeToLive(u)
  \/ \E k \in Keys : WriteCarelessly(k)
  \/ \E n \in Names : ReceiptEnds(n)
  \/ \E r \in late : ArriveLate(r)
  \/ AllIsOver
Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
(* What is promised.                                                       *)

Standing(k) ==  \* what a reader of committed values finds
  LET x == item[k].mark.unit
  IN  IF ~NoMark(k) /\ head[x] # None /\ head[x].state = "committed" /\ ~head[x].isClosed /\ k \in DOMAIN Writes[x]
      THEN Written(x, k) ELSE item[k].version
Atomicity == \A k \in Keys : Standing(k) = truth.left[k]
OnlyOnce ==
  /\ ~truth.isWrong /\ Cardinality(truth.committed \cap Coordinators) <= 1
  /\ \A n \in Names : Cardinality({u \in truth.committed : Name[u] = n}) <= 1
Outcomes == \A u \in Units : /\ me[u].told = "committed" => u \in truth.committed
                             /\ me[u].told \in {"rolledBack", "saved", "changed"} => u \notin truth.committed
NothingLeft ==
  /\ \A u \in Units : head[u] # None => head[u].state # "no state"
  /\ Over /\ late = {} /\ (\A u \in Units : head[u] = None \/ head[u].isClosed) => \A k \in Keys : NoMark(k)
RollbackWritesNothing ==  \* only a decision, or what finishes a committed unit, changes the version of an item
  [][\A k \in Keys : item'[k].version # item[k].version =>
       truth' # truth \/ (~NoMark(k) /\ State(item[k].mark.unit) = "committed")]_vars
Serialisable ==
  [][\A u \in truth'.committed \ truth.committed : \A k \in AllReads(u) : me[u].seen[k] = truth.left[k]]_vars
=============================================================================
