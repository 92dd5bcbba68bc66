------------------------------- MODULE Permits ------------------------------
(***************************************************************************)
(* How many may hold a lock at once: users that all ask for one number,    *)
(* deployments, of which the execution that started last counts, and an    *)
(* operator's limit, which replaces both until it is unset.  Requests and  *)
(* conditions have their names from the code (src/ticketlock/locks).       *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
  Users,       \* each asks once; its number is its own, or that of its deployment
  Asks,        \* by user, the number
  Since,       \* by user, when its execution started; 0 for one that changes no number; None without a deployment
  Limits,      \* what operators set, each number once
  Unsets,      \* how often they unset it
  Copies,      \* how many requests arrive late, or never
  Without,     \* conditions that are left out, to see what breaks
  None

VARIABLES
  lock,    \* the lock item; None if there is none
  seen,    \* what each user has read last, and who has not asked yet
  late,    \* copies of requests, and how many there were
  left,    \* what operators have yet to set, and how often they will unset it
  past     \* the deployments whose numbers were stored, the requests that a told one has replaced, what must never be
vars == <<lock, seen, late, left, past>>

Request(op, u, v) ==
  [op |-> op, user |-> u, asks |-> IF u = None THEN 0 ELSE Asks[u], since |-> IF u = None THEN None ELSE Since[u],
   limit |-> 0, isFirst |-> v = None,
   keptUntil |-> IF v = None THEN None ELSE v.keptUntil, wereKeptUntil |-> IF v = None THEN None ELSE v.wereKeptUntil]

(* What a request of a user does with the number, by the item v that it has read. *)
IsLater(u, v) ==
  IF Since[u] = 0 THEN FALSE ELSE IF v.since # None THEN v.since < Since[u]
  ELSE IF v.keptUntil # None THEN v.ofUsers \in {None, Asks[u]} ELSE v.permits = Asks[u]
Numbering(u, v) ==
  CASE Since[u] = None -> "OWN"
    [] v = None -> IF Since[u] = 0 THEN "OF_NO_TIME" ELSE "LATER"
    [] v # None /\ ~IsLater(u, v) -> "LEFT"
    [] v # None /\ IsLater(u, v) /\ v.keptUntil # None -> "LATER_BENEATH_A_LIMIT"
    [] OTHER -> "LATER"

Requires(r) ==
  CASE r.op = "OWN" -> {"PERMITS_AS_ASKED"}
    [] r.op \in {"LEFT", "OF_NO_TIME"} -> {"PERMITS_AS_ASKED_OR_LATER"}
    [] r.op = "LATER" -> {"MY_PERMITS_ARE_LATER", "A_PERMIT_OF_MINE_IS_FREE"}
    [] r.op = "LATER_BENEATH_A_LIMIT" -> {"MY_PERMITS_ARE_LATER_BENEATH_A_LIMIT"}
    [] r.op = "SetLimit" ->
         IF r.isFirst THEN {}
         ELSE IF r.keptUntil # None THEN {"LIMIT_AS_I_SAW"}
         ELSE {"NO_LIMIT_IS_SET", IF r.wereKeptUntil = None THEN "NO_LIMIT_UNSET_YET" ELSE "LIMIT_UNSET_AS_I_SAW"}
    [] r.op = "UnsetLimit" -> {"LIMIT_AS_I_SAW"} \cup IF r.limit = 0 THEN {} ELSE {"NO_USER_HAS_ASKED"}

AsAsked(r) == lock.permits = r.asks \/ lock.keptUntil # None
Holds(c, r) ==
  CASE c = "PERMITS_AS_ASKED" -> AsAsked(r)
    [] c = "PERMITS_AS_ASKED_OR_LATER" -> AsAsked(r) \/ (lock.since # None /\ lock.since >= r.since)
    [] c = "MY_PERMITS_ARE_LATER" ->
         lock.keptUntil = None /\ IF lock.since = None THEN lock.permits = r.asks ELSE lock.since < r.since
    [] c = "MY_PERMITS_ARE_LATER_BENEATH_A_LIMIT" ->
         lock.keptUntil # None /\ IF lock.since = None THEN lock.ofUsers \in {None, r.asks} ELSE lock.since < r.since
    [] c = "A_PERMIT_OF_MINE_IS_FREE" -> lock.held < r.asks
    [] c = "NO_LIMIT_IS_SET" -> lock.keptUntil = None
    [] c = "NO_LIMIT_UNSET_YET" -> lock.wereKeptUntil = None
    [] c = "LIMIT_AS_I_SAW" -> lock.keptUntil = r.keptUntil
    [] c = "LIMIT_UNSET_AS_I_SAW" -> lock.wereKeptUntil = r.wereKeptUntil
    [] c = "NO_USER_HAS_ASKED" -> lock.ofUsers = None

OfUsers == {"OWN", "LEFT", "OF_NO_TIME", "LATER", "LATER_BENEATH_A_LIMIT"}
Creating == {"OWN", "OF_NO_TIME", "LATER", "SetLimit"}
HasRoom(r) == r.op \notin OfUsers \ {"LATER"} \/ lock.held < lock.permits  \* A_PERMIT_IS_FREE, as in LockTable
Allows(r) ==
  IF lock = None THEN r.op \in Creating /\ r.isFirst
  ELSE ~(r.op = "SetLimit" /\ r.isFirst) /\ HasRoom(r) /\ \A c \in Requires(r) \ Without : Holds(c, r)

NewItem(permits) ==
  [permits |-> permits, since |-> None, ofUsers |-> None, keptUntil |-> None, wereKeptUntil |-> None, held |-> 0]
KeptNext(r) ==
  IF r.keptUntil # None THEN r.keptUntil + 1 ELSE IF r.wereKeptUntil # None THEN r.wereKeptUntil + 1 ELSE 1
NewLock(r) ==
  LET l == IF lock = None THEN NewItem(IF r.op = "SetLimit" THEN r.limit ELSE r.asks) ELSE lock
      takes == [l EXCEPT !.held = @ + 1]
  IN
  CASE r.op \in {"OWN", "LEFT"} -> takes
    [] r.op = "OF_NO_TIME" -> [takes EXCEPT !.since = IF @ = None THEN 0 ELSE @]
    [] r.op = "LATER" -> [takes EXCEPT !.permits = r.asks, !.since = r.since]
    [] r.op = "LATER_BENEATH_A_LIMIT" -> [takes EXCEPT !.ofUsers = r.asks, !.since = r.since]
    [] r.op = "SetLimit" ->
         [l EXCEPT !.ofUsers = IF lock = None \/ r.keptUntil # None THEN @ ELSE l.permits, !.permits = r.limit,
                   !.keptUntil = KeptNext(r), !.wereKeptUntil = None]
    [] r.op = "UnsetLimit" ->
         [l EXCEPT !.permits = IF r.limit = 0 THEN l.ofUsers ELSE r.limit, !.since = IF r.limit = 0 THEN @ ELSE 0,
                   !.ofUsers = None, !.keptUntil = None, !.wereKeptUntil = r.keptUntil]

IsAsAsked(l, u) ==  \* whether the number is the user's, a later deployment's, or an operator's
  \/ l.permits = Asks[u] \/ l.keptUntil # None
  \/ IF Since[u] = None \/ l.since = None THEN FALSE ELSE l.since >= Since[u]

Arrive(r) ==
  IF Allows(r)
  THEN /\ lock' = NewLock(r)
       /\ past' = [past EXCEPT !.newest = IF r.op \in {"LATER", "LATER_BENEATH_A_LIMIT"} THEN @ \cup {r.user} ELSE @,
                               !.isUndone = @ \/ (r.op \notin OfUsers /\ r \in past.obsolete),
                               !.isMismatched = @ \/ (r.op \in OfUsers /\ ~IsAsAsked(lock', r.user))]
  ELSE UNCHANGED <<lock, past>>

----------------------------------------------------------------------------
Read(u) == u \in DOMAIN seen /\ seen' = [seen EXCEPT ![u] = lock] /\ UNCHANGED <<lock, late, left, past>>
MaySend == late.count < Copies
Delay(r) == MaySend /\ late' = [count |-> late.count + 1, are |-> late.are \cup {r}] /\ UNCHANGED <<lock, past>>
Ask(u) ==  \* it takes the lock, or is refused
  /\ u \in DOMAIN seen /\ seen' = [x \in DOMAIN seen \ {u} |-> seen[x]] /\ UNCHANGED left
  /\ LET r == Request(Numbering(u, seen[u]), u, None) IN (Arrive(r) /\ UNCHANGED late) \/ Delay(r)
Operate(r) ==  \* an operator is told that it is set, or unset; or gets no answer, and may try again
  \/ /\ Allows(r) /\ lock' = NewLock(r) /\ UNCHANGED <<late, seen>>
     /\ past' = [past EXCEPT !.obsolete = late.are]
     /\ left' = IF r.op = "SetLimit" THEN [left EXCEPT !.limits = @ \ {r.limit}] ELSE [left EXCEPT !.unsets = @ - 1]
  \/ Delay(r) /\ UNCHANGED <<seen, left>>
SetLimit == \E n \in left.limits : Operate([Request("SetLimit", None, lock) EXCEPT !.limit = n])
UnsetLimit ==
  /\ left.unsets > 0 /\ lock # None /\ lock.keptUntil # None
  /\ Operate([Request("UnsetLimit", None, lock) EXCEPT !.limit = IF lock.ofUsers = None THEN 1 ELSE 0])
ArriveLate(r) == Arrive(r) /\ late' = [late EXCEPT !.are = @ \ {r}] /\ UNCHANGED <<seen, left>>
Release == lock # None /\ lock.held > 0 /\ lock' = [lock EXCEPT !.held = @ - 1] /\ UNCHANGED <<seen, late, left, past>>

Init == /\ lock = None /\ seen = [u \in Users |-> None] /\ late = [count |-> 0, are |-> {}]
        /\ left = [limits |-> Limits, unsets |-> Unsets]
        /\ past = [newest |-> {}, obsolete |-> {}, isUndone |-> FALSE, isMismatched |-> FALSE]
Next == (\E u \in Users : Read(u) \/ Ask(u)) \/ SetLimit \/ UnsetLimit \/ Release \/ \E r \in late.are : ArriveLate(r)
Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
NumberOfUsers == IF lock = None THEN None ELSE IF lock.keptUntil # None THEN lock.ofUsers ELSE lock.permits
Latest == CHOOSE u \in past.newest : \A v \in past.newest : Since[v] <= Since[u]
LatestDeployment == past.newest # {} => NumberOfUsers = Asks[Latest]
NoLimitUndone == ~past.isUndone  \* by a request that is older than what an operator was told last
MismatchIsRefused == ~past.isMismatched
HeldBefore == IF lock = None THEN 0 ELSE lock.held
RoomForEachGrant == [][lock' # None => lock'.held <= HeldBefore \/ lock'.held <= lock'.permits]_vars
=============================================================================
