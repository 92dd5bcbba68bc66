---------------------------- MODULE LockHistories ----------------------------
(***************************************************************************)
(* Whether the code does what LockTable and Permits say.  The simulated    *)
(* world of locks records what each request of the code states, finds and  *)
(* leaves in the table (tests/property/specs).  Each of these steps has to *)
(* be one of the two specifications.                                       *)
(***************************************************************************)
EXTENDS LockTable

VARIABLE step  \* what was recorded
vars == <<step, lock, rows>>

Numbers ==
  INSTANCE Permits WITH
    Users <- {}, Asks <- <<>>, Since <- <<>>, Limits <- {}, Unsets <- 0, Copies <- 0,
    seen <- None, late <- None, left <- None, past <- None

HasNumber(s) == s.number.op # "none"
HasRoomOfItsOwn(s) == s.number.op = "LATER" /\ s.request.op = "TakeAtOnce" /\ ~s.request.shared

RequiresOfLock(s) ==
  IF s.request.op = "SetLimit" /\ s.number.isFirst THEN {}  \* but that there is no lock item
  ELSE Requires(s.request) \ IF HasRoomOfItsOwn(s) THEN {"A_PERMIT_IS_FREE"} ELSE {}
RequiresOfNumber(s) ==
  IF ~HasNumber(s) THEN {}
  ELSE Numbers!Requires(s.number) \ IF HasRoomOfItsOwn(s) THEN {} ELSE {"A_PERMIT_OF_MINE_IS_FREE"}

MayCreate(s) ==
  \/ s.request.op \in Creating /\ s.number.op \in Numbers!Creating
  \/ s.request.op = "SetLimit" /\ s.number.isFirst
AllowsAll(s) ==
  /\ RowAllows(s.request)
  /\ \/ s.request.op \in OnTheRowAlone
     \/ IF lock = None THEN MayCreate(s)
        ELSE /\ ~(s.request.op = "SetLimit" /\ s.number.isFirst)
             /\ \A c \in RequiresOfLock(s) \ OfRows : Holds(c, s.request)
             /\ \A c \in RequiresOfNumber(s) : Numbers!Holds(c, s.number)

OfNumbers == {"permits", "since", "ofUsers", "keptUntil", "wereKeptUntil"}
IsLock(s, item) ==
  LET after == NewLock(s.request, s.epoch)
      numbered == IF HasNumber(s) THEN Numbers!NewLock(s.number) ELSE lock
  IN  IF item = None THEN after = None
      ELSE /\ \A f \in DOMAIN after \ OfNumbers : item[f] = after[f]
           /\ \A f \in OfNumbers : item[f] = numbered[f]

StatesTheSame == step.requires = RequiresOfLock(step) \cup RequiresOfNumber(step)
AllowsTheSame == step.isApplied = (AllowsAll(step) /\ step.othersAllow)
LeavesTheSame ==
  IF step.isApplied THEN IsLock(step, step.left.lock) /\ step.left.rows = NewRows(step.request)
  ELSE step.left = step.found

Found == lock = step.found.lock /\ rows = step.found.rows
=============================================================================
