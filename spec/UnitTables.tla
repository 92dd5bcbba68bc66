----------------------------- MODULE UnitTables -----------------------------
(***************************************************************************)
(* The items that units write, and the records of units, in their tables:  *)
(* what each request of src/ticketlock/units requires and does.  Units     *)
(* says who sends which request, and what goes wrong.                      *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
  Units,         \* numbers; a smaller one is older
  Keys,          \* of items
  Reads,         \* by unit, the keys that it reads
  Writes,        \* by unit, the keys that it writes, with "put" or "delete"; it reads them, too
  Name,          \* by unit, its name, or None
  Coordinators,  \* the units that go on with the saved unit, one after the other
  Absent, Unversioned,  \* in place of a version: there is no item, or no unit has written it
  Without,       \* conditions that are left out, to see what breaks
  None

VARIABLES
  item,     \* by key: its version, which is the unit that wrote it last, and its mark
  head,     \* by unit: the head of its record, or None
  saved,    \* the head of the saved unit's record
  receipt   \* by name: who has used it or given it up, or None

AllReads(u) == Reads[u] \cup DOMAIN Writes[u]
After(u, k) == IF Writes[u][k] = "delete" THEN Absent ELSE u
NoMark(k) == item[k].mark = None
Names == {Name[u] : u \in Units} \ {None}

----------------------------------------------------------------------------
(* What a request requires, and what it does if it is allowed.             *)

Request(op, u) ==
  [op |-> op, unit |-> u, keys |-> {}, seen |-> <<>>, kind |-> None, lease |-> 0, rev |-> 0, receipt |-> None]

OfItems == {"UNMARKED", "AT_THE_VERSION_I_SAW", "NEVER_WRITTEN_BY_A_UNIT", "ABSENT"}
OfName(r) == {IF r.receipt = None THEN "NO_SUCH_ROW" ELSE "RECEIPT_GIVEN_UP_AS_I_SAW"}
OfSaved == {"HEAD_IS_PENDING", "REV_AS_I_SAW"}
Beside(r) == (IF Name[r.unit] = None THEN {} ELSE OfName(r)) \cup (IF r.unit \in Coordinators THEN OfSaved ELSE {})

Requires(r) ==
  CASE r.op = "CommitNatively" -> OfItems \cup Beside(r)
    [] r.op = "Open" -> {"NO_SUCH_ROW"}
    [] r.op = "Mark" -> {"UNMARKED", "AT_THE_VERSION_I_SAW"}
    [] r.op = "MarkWithHead" -> OfItems \cup {"HEAD_IS_PENDING"}
    [] r.op = "Commit" -> OfItems \cup {"HEAD_IS_PENDING"} \cup Beside(r)
    [] r.op = "Renew" -> {"HEAD_IS_PENDING"}
    [] r.op = "RollBack" -> {"HEAD_IS_PENDING"}
    [] r.op = "RollBackExpired" -> {"HEAD_IS_PENDING", "LEASE_AS_I_SAW"}
    [] r.op = "Finish" -> {"MARKED_BY_THE_UNIT"}
    [] r.op = "Unmark" -> {"MARKED_BY_THE_UNIT"} \cup IF r.kind = "insert" THEN {"ONLY_HOLDS_A_PLACE"} ELSE {}
    [] r.op = "Close" -> {"HEAD_IS_FINAL"}
    [] r.op = "GiveUpName" -> OfName(r)
    [] r.op = "Claim" -> OfSaved
    [] r.op \in {"Save", "EndSaved"} -> OfSaved

OnTheHead == {"MarkWithHead", "Commit", "Renew", "RollBack", "RollBackExpired"}
Holds(c, r) ==
  LET h == head[r.unit]
      the == CHOOSE k \in r.keys : TRUE
  IN
  CASE c = "UNMARKED" -> \A k \in r.keys : NoMark(k)
    [] c = "AT_THE_VERSION_I_SAW" -> \A k \in r.keys : r.seen[k] \in Units => item[k].version = r.seen[k]
    [] c = "NEVER_WRITTEN_BY_A_UNIT" -> \A k \in r.keys : r.seen[k] = Unversioned => item[k].version = Unversioned
    [] c = "ABSENT" -> \A k \in r.keys : r.seen[k] = Absent => item[k].version = Absent /\ NoMark(k)
    [] c = "NO_SUCH_ROW" -> IF r.op = "Open" THEN h = None ELSE receipt[Name[r.unit]] = None
    [] c = "HEAD_IS_PENDING" -> /\ r.op \in OnTheHead => h # None /\ h.state = "pending"
                                /\ OfSaved \subseteq Requires(r) => saved.state = "pending"
    [] c = "REV_AS_I_SAW" -> saved.rev = r.rev
    [] c = "LEASE_AS_I_SAW" -> h # None /\ h.lease = r.lease
    [] c = "HEAD_IS_FINAL" -> h # None /\ h.state # "pending"
    [] c = "MARKED_BY_THE_UNIT" -> ~NoMark(the) /\ item[the].mark.unit = r.unit
    [] c = "ONLY_HOLDS_A_PLACE" -> ~NoMark(the) /\ item[the].mark.kind = "insert" /\ item[the].version = Absent
    [] c = "RECEIPT_GIVEN_UP_AS_I_SAW" ->
         LET is == receipt[Name[r.unit]] IN is = None \/ (is = r.receipt /\ is.state = "rolledBack")

Allows(r) == \A c \in Requires(r) \ Without : Holds(c, r)

Bare(v) == [version |-> v, mark |-> None]
NewItem(k, r) ==
  LET u == r.unit
      was == item[k]
  IN
  IF k \notin r.keys THEN was
  ELSE CASE r.op = "CommitNatively" -> IF k \in DOMAIN Writes[u] THEN Bare(After(u, k)) ELSE was
         [] r.op \in {"Mark", "MarkWithHead"} ->
              [was EXCEPT !.mark =
                 [unit |-> u, kind |-> IF r.seen[k] = Absent THEN "insert"
                                       ELSE IF k \in DOMAIN Writes[u] THEN "write" ELSE "read"]]
         [] r.op = "Finish" -> IF k \in DOMAIN Writes[u] THEN Bare(After(u, k)) ELSE Bare(was.version)
         [] r.op = "Unmark" -> IF r.kind = "insert" THEN Bare(Absent) ELSE Bare(was.version)
         [] OTHER -> was

NewHead(r) ==
  LET h == head[r.unit]
      pending == [state |-> "pending", lease |-> 1, isOver |-> FALSE, isClosed |-> FALSE]
      is == IF h = None THEN pending ELSE h
  IN
  CASE r.op = "Open" -> pending
    [] r.op = "Renew" -> [is EXCEPT !.lease = @ + 1, !.isOver = FALSE]
    [] r.op = "Commit" -> [is EXCEPT !.state = "committed"]
    [] r.op \in {"RollBack", "RollBackExpired"} -> [is EXCEPT !.state = "rolledBack"]
    [] r.op = "Close" -> IF h = None THEN [pending EXCEPT !.state = "no state"] ELSE [is EXCEPT !.isClosed = TRUE]
    [] OTHER -> h

Deciding == {"CommitNatively", "Commit"}
NewReceipt(r) ==
  LET n == Name[r.unit]
  IN  CASE n = None -> receipt
        [] r.op \in Deciding -> [receipt EXCEPT ![n] = [state |-> "committed", by |-> r.unit]]
        [] r.op = "GiveUpName" -> [receipt EXCEPT ![n] = [state |-> "rolledBack", by |-> r.rev]]
        [] OTHER -> receipt

NewSaved(r) ==
  CASE r.op \in Deciding /\ r.unit \in Coordinators -> [saved EXCEPT !.state = "committed"]
    [] r.op = "Claim" -> [saved EXCEPT !.rev = @ + 1, !.coordinator = r.unit]
    [] r.op = "Save" -> [saved EXCEPT !.rev = @ + 1]
    [] r.op = "EndSaved" -> [saved EXCEPT !.state = "rolledBack"]
    [] OTHER -> saved
=============================================================================
