----------------------------- MODULE UnitTables -----------------------------
(***************************************************************************)
(* The items that units write, and the units table: what each request of   *)
(* src/ticketlock/units requires and does.  Units and UnitRecords say who  *)
(* sends which request, and what goes wrong.                               *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
  Units,         \* numbers; a smaller one is older
  Keys,          \* of items
  Absent, Unversioned, Foreign,  \* in place of a version: there is no item, it has none, no unit has written it
  Without,       \* conditions that are left out, to see what breaks
  None

VARIABLES
  item,     \* by key: its version, which is the unit that wrote it last, and its mark
  head,     \* by unit: the head of its record, or None
  saved,    \* the head of a saved unit's record, or None
  receipt,  \* by name: who has used it or given it up, or None
  row       \* others: how many rows of keys; the try that wrote what a saved unit has read; until when an owner's stays
stored == <<item, head, saved, receipt, row>>

NoMark(k) == item[k].mark = None

(* A request that does not use a field leaves it as it is here.            *)
Request(op, u) ==
  [op |-> op, unit |-> u,
   keys |-> {}, seen |-> <<>>,         \* items, and the versions that were read; None for one that was not read
   writes |-> <<>>,                    \* by key, "put" or "delete"; the other items are only read
   kind |-> None,                      \* of the marks that it removes
   name |-> None, receipt |-> None,    \* the unit's name, and its receipt that was read
   isResumed |-> FALSE, rev |-> 0,     \* whether it ends a saved unit, too, and at which revision
   lease |-> 0, owner |-> None,        \* of the head that it writes, or has read
   final |-> 1,                        \* when that has ended; Units does not tell the times of ends apart
   number |-> 0, until |-> 0]          \* of rows, of a try, of what is put in place of a value; until when a row stays

----------------------------------------------------------------------------
(* What a request requires.                                                *)

OfItem(k, r) ==
  CASE r.seen[k] = None -> "OF_UNITS_ALONE"
    [] r.seen[k] = Absent -> "ABSENT"
    [] r.seen[k] = Unversioned -> "NEVER_WRITTEN_BY_A_UNIT"
    [] OTHER -> "AT_THE_VERSION_I_SAW"
OfItems(r) == IF r.keys = {} THEN {} ELSE {"UNMARKED"} \cup {OfItem(k, r) : k \in r.keys}
OfName(r) ==
  IF r.name = None THEN {} ELSE {IF r.receipt = None THEN "NO_SUCH_ROW" ELSE "RECEIPT_GIVEN_UP_AS_I_SAW"}
OfMyHead == {"KNOWN_FORMAT", "HEAD_IS_PENDING", "REV_AS_I_SAW"}
Beside(r) == OfName(r) \cup IF r.isResumed THEN OfMyHead ELSE {}

Requires(r) ==
  CASE r.op = "CommitNatively" -> OfItems(r) \cup Beside(r)
    [] r.op = "Open" -> {"NO_SUCH_ROW"}
    [] r.op = "Mark" -> OfItems(r)
    [] r.op = "MarkWithHead" -> OfItems(r) \cup OfMyHead
    [] r.op = "Commit" -> OfItems(r) \cup OfMyHead \cup Beside(r)
    [] r.op = "NoteRows" -> OfMyHead  \* how many tell what it writes
    [] r.op = "AddKeys" -> OfMyHead \cup {"NO_SUCH_ROW"}  \* one more row tells what it has marked
    [] r.op = "Renew" -> OfMyHead \cup {"LEASE_ENDS_BEFORE"}
    [] r.op = "RollBack" -> {"KNOWN_FORMAT", "HEAD_IS_PENDING"}
    [] r.op = "RollBackExpired" -> {"KNOWN_FORMAT", "HEAD_IS_PENDING", "LEASE_AS_I_SAW"}
    [] r.op = "RollBackOfOwner" -> {"KNOWN_FORMAT", "HEAD_IS_PENDING", "OWNER_AS_ASKED"}
    [] r.op \in {"Finish", "Unmark", "Correct"} ->
         {"MARKED_BY_THE_UNIT"} \cup IF r.kind = "insert" THEN {"ONLY_HOLDS_A_PLACE"} ELSE {}
    [] r.op = "Close" -> {"ENDED_AS_I_SAW"}
    [] r.op = "Forget" -> {"HEAD_IS_CLOSED"}
    [] r.op = "GiveUpName" -> OfName(r)
    [] r.op = "Save" -> IF r.rev = 0 THEN {"NO_SUCH_ROW"} ELSE OfMyHead
    [] r.op \in {"Claim", "EndSaved"} -> OfMyHead
    [] r.op = "PutSavedRow" -> {"NOT_WRITTEN_SINCE_THIS_TRY"}
    [] r.op = "PutRowOfOwner" -> {"NO_ROW_THAT_STAYS_AS_LONG"}

RollingBack == {"RollBack", "RollBackExpired", "RollBackOfOwner"}
OnTheHead == {"MarkWithHead", "Commit", "NoteRows", "AddKeys", "Renew"} \cup RollingBack
OfSaved == {"Save", "Claim", "EndSaved"}
Heads(r) ==  \* that it requires something of; the revision of one that was not saved never changes
  (IF r.op \in OnTheHead THEN {head[r.unit]} ELSE {}) \cup (IF r.op \in OfSaved \/ r.isResumed THEN {saved} ELSE {})

Holds(c, r) ==  \* whether a condition of a request holds
  LET h == head[r.unit]
      is == receipt[r.name]
  IN
  CASE c = "UNMARKED" -> \A k \in r.keys : NoMark(k)
    [] c = "AT_THE_VERSION_I_SAW" ->
         \A k \in r.keys : OfItem(k, r) = c => item[k].version = r.seen[k]
    [] c = "NEVER_WRITTEN_BY_A_UNIT" -> \A k \in r.keys : r.seen[k] = Unversioned => item[k].version = Unversioned
    [] c = "ABSENT" -> \A k \in r.keys : r.seen[k] = Absent => item[k].version = Absent /\ NoMark(k)
    [] c = "OF_UNITS_ALONE" -> \A k \in r.keys : r.seen[k] = None => item[k].version # Foreign
    [] c = "NO_SUCH_ROW" -> /\ r.op = "Open" => h = None
                            /\ r.op = "Save" => saved = None
                            /\ r.op = "AddKeys" => row.keys < r.number
                            /\ r.name # None => is = None
    [] c = "KNOWN_FORMAT" -> \A g \in Heads(r) : g # None /\ g.format = 1
    [] c = "HEAD_IS_PENDING" -> \A g \in Heads(r) : g # None /\ g.state = "pending"
    [] c = "REV_AS_I_SAW" -> r.op \in OfSaved \/ r.isResumed => saved # None /\ saved.rev = r.rev
    [] c = "LEASE_ENDS_BEFORE" -> h # None /\ h.lease < r.lease
    [] c = "LEASE_AS_I_SAW" -> h # None /\ h.lease = r.lease
    [] c = "OWNER_AS_ASKED" -> h # None /\ h.owner = r.owner
    [] c = "ENDED_AS_I_SAW" -> h # None /\ h.final = r.final
    [] c = "HEAD_IS_CLOSED" -> h # None /\ h.isClosed
    [] c = "MARKED_BY_THE_UNIT" -> \A k \in r.keys : ~NoMark(k) /\ item[k].mark.unit = r.unit
    [] c = "ONLY_HOLDS_A_PLACE" ->
         \A k \in r.keys : ~NoMark(k) /\ item[k].mark.kind = "insert" /\ item[k].version = Absent
    [] c = "RECEIPT_GIVEN_UP_AS_I_SAW" -> is = None \/ (is = r.receipt /\ is.state = "rolledBack")
    [] c = "NOT_WRITTEN_SINCE_THIS_TRY" -> row.saved < r.number
    [] c = "NO_ROW_THAT_STAYS_AS_LONG" -> row.until < r.until

Allows(r) == \A c \in Requires(r) \ Without : Holds(c, r)

----------------------------------------------------------------------------
(* What it does if it is allowed.                                          *)

Bare(v) == [version |-> v, mark |-> None]
After(k, r) == Bare(IF r.writes[k] = "delete" THEN Absent ELSE r.unit)
NewItem(k, r) ==
  LET was == item[k]
  IN
  IF k \notin r.keys THEN was
  ELSE CASE r.op = "CommitNatively" -> IF k \in DOMAIN r.writes THEN After(k, r) ELSE was
         [] r.op \in {"Mark", "MarkWithHead"} ->
              [was EXCEPT !.mark =
                 [unit |-> r.unit, kind |-> IF r.seen[k] = Absent THEN "insert"
                                            ELSE IF k \in DOMAIN r.writes THEN "write" ELSE "read"]]
         [] r.op = "Finish" -> IF k \in DOMAIN r.writes THEN After(k, r) ELSE Bare(was.version)
         [] r.op = "Unmark" -> IF r.kind = "insert" THEN Bare(Absent) ELSE Bare(was.version)
         [] r.op = "Correct" -> Bare(IF r.kind = "insert" THEN Absent ELSE r.number)
         [] OTHER -> was

Pending ==
  [state |-> "pending", lease |-> 0, owner |-> None, final |-> 0, isOver |-> FALSE, isClosed |-> FALSE, format |-> 1]
NewHead(r) ==
  LET h == head[r.unit]
      is == IF h = None THEN [Pending EXCEPT !.state = "no state"] ELSE h  \* an update makes what is not there
  IN
  CASE r.op = "Open" -> [Pending EXCEPT !.lease = r.lease]
    [] r.op = "Renew" -> [is EXCEPT !.lease = r.lease, !.isOver = FALSE]
    [] r.op = "Commit" -> [is EXCEPT !.state = "committed", !.final = r.final]
    [] r.op \in RollingBack -> [is EXCEPT !.state = "rolledBack", !.final = r.final]
    [] r.op = "Close" -> [is EXCEPT !.isClosed = TRUE]
    [] r.op = "Forget" -> is
    [] OTHER -> h

Deciding == {"CommitNatively", "Commit"}
NewReceipt(r) ==
  CASE r.name = None -> receipt
    [] r.op \in Deciding -> [receipt EXCEPT ![r.name] = [state |-> "committed", by |-> r.unit]]
    [] r.op = "GiveUpName" -> [receipt EXCEPT ![r.name] = [state |-> "rolledBack", by |-> r.number]]
    [] OTHER -> receipt

NewSaved(r) ==
  CASE r.op \in Deciding /\ r.isResumed -> [saved EXCEPT !.state = "committed"]
    [] r.op = "Claim" -> [saved EXCEPT !.rev = @ + 1, !.coordinator = r.unit]
    [] r.op = "Save" -> [state |-> "pending", rev |-> r.rev + 1, coordinator |-> r.unit, format |-> 1]
    [] r.op = "EndSaved" -> [saved EXCEPT !.state = "rolledBack"]
    [] OTHER -> saved

NewRow(r) ==
  CASE r.op = "AddKeys" -> [row EXCEPT !.keys = r.number]
    [] r.op = "PutSavedRow" -> [row EXCEPT !.saved = r.number]
    [] r.op = "PutRowOfOwner" -> [row EXCEPT !.until = r.until]
    [] OTHER -> row
=============================================================================
