----------------------------- MODULE Invocations -----------------------------
(***************************************************************************)
(* A durable execution of Lambda that holds the lock, in one invocation    *)
(* after the other.  The service may give one up that runs on, and begin   *)
(* the next; and it may end the execution while one runs, and a clean-up   *)
(* frees the lock.  What requests require, and do, says LockTable; an      *)
(* invocation is told by when the service ends it, which rises.            *)
(***************************************************************************)
EXTENDS LockTable

CONSTANTS
  Last,    \* how many invocations there are
  Ends,    \* when time ends
  Lease,   \* of an invocation that runs
  Waits,   \* how long a suspension lasts
  Error,   \* by how much a process may be wrong about the table's time
  Copies   \* how many requests arrive twice, late, or never, or get no answer, in one behaviour

VARIABLES
  clock,
  begun,   \* how many invocations have begun
  isOver,  \* whether the execution has ended, so that no more begin
  me,      \* by invocation: what it does, and until when it relies on the lock, or has left it suspended
  latest,  \* the last invocation that was told that it goes on with the lock
  seen,    \* the lease that a clean-up has read; None before
  late     \* copies of requests, and how many there were
vars == <<lock, rows, clock, begun, isOver, me, latest, seen, late>>

X == "x"
IsHeld(l) == X \in DOMAIN l.holders
Does(pc, until) == [pc |-> pc, until |-> until]
Gone == Does("gone", 0)

----------------------------------------------------------------------------
Leased(op, i, e) ==
  [Request(op, X) EXCEPT !.token = lock.token, !.invocation = i, !.now = clock + e, !.ends = clock + Lease + e]
Choices(i, e) ==
  LET resumes == Leased("Resume", i, e)
      asSeen == IF IsHeld(lock) THEN {l \in {lock.holders[X].ends} : l >= resumes.ends /\ ~lock.holders[X].suspended}
                ELSE {}
  IN
  CASE me[i].pc = "begins" -> {resumes} \cup {[resumes EXCEPT !.ends = l, !.seen = {<<X, l>>}] : l \in asSeen}
    [] me[i].pc = "runs" ->
         {Leased("Renew", i, e), Leased("Release", i, e)}
         \cup {[Leased("Suspend", i, e) EXCEPT !.ends = @ + wait] : wait \in {0, Waits}}
    [] OTHER -> {}

Arrive(r) == lock' = IF Allows(r) THEN NewLock(r, 0) ELSE lock
Replied(i, r, isApplied) ==
  LET held == IsHeld(lock')
      h == lock'.holders[X]
  IN
  CASE r.op = "Resume" ->
         IF isApplied THEN Does("runs", r.ends)
         ELSE IF ~held THEN Gone
         ELSE IF h.invocation = i /\ ~h.suspended THEN Does("runs", h.ends)
         ELSE IF h.invocation >= i \/ h.ends <= r.now THEN Gone ELSE me[i]
    [] r.op = "Renew" ->
         IF isApplied THEN Does("runs", r.ends)
         ELSE IF ~held THEN Gone
         ELSE IF h.invocation > i \/ h.ends < r.ends THEN Gone ELSE Does("runs", r.ends)
    [] r.op = "Suspend" -> IF isApplied THEN Does("suspended", r.ends) ELSE Gone
    [] r.op = "Release" -> Gone
Told(i, does) ==
  me' = [me EXCEPT ![i] = does] /\ latest' = IF does.pc = "runs" /\ i > latest THEN i ELSE latest
Untold(i, r) == Told(i, IF r.op \in {"Suspend", "Release"} THEN Gone ELSE me[i])  \* then it relies on nothing
Copied(r) == late.count < Copies /\ late' = [count |-> late.count + 1, are |-> late.are \cup {r}]

Send(i, r) ==
  /\ \/ Arrive(r) /\ Told(i, Replied(i, r, Allows(r))) /\ UNCHANGED late
     \/ Arrive(r) /\ Told(i, Replied(i, r, Allows(r))) /\ Copied(r)
     \/ Arrive(r) /\ Untold(i, r) /\ Copied(r)
     \/ UNCHANGED lock /\ Untold(i, r) /\ Copied(r)
  /\ UNCHANGED <<rows, clock, begun, isOver, seen>>
ArriveLate(r) ==
  Arrive(r) /\ late' = [late EXCEPT !.are = @ \ {r}] /\ UNCHANGED <<rows, clock, begun, isOver, me, latest, seen>>
Begin ==
  /\ ~isOver /\ begun < Last /\ begun' = begun + 1 /\ me' = [me EXCEPT ![begun + 1] = Does("begins", 0)]
  /\ UNCHANGED <<lock, rows, clock, isOver, latest, seen, late>>
End == ~isOver /\ isOver' = TRUE /\ UNCHANGED <<lock, rows, clock, begun, me, latest, seen, late>>
Read ==  \* a clean-up leaves a lock alone that is not suspended
  /\ isOver /\ seen = None /\ IsHeld(lock) /\ lock.holders[X].suspended /\ seen' = lock.holders[X].ends
  /\ UNCHANGED <<lock, rows, clock, begun, isOver, me, latest, late>>
Free ==
  /\ seen # None
  /\ Arrive([Request("FreeSuspended", X) EXCEPT !.token = lock.token, !.seen = {<<X, seen>>}])
  /\ UNCHANGED <<rows, clock, begun, isOver, me, latest, seen, late>>
Taken ==  \* by the next owner, after the end of its lease
  /\ IsHeld(lock) /\ lock.holders[X].ends < clock /\ lock' = Releasing(lock, X, FALSE)
  /\ UNCHANGED <<rows, clock, begun, isOver, me, latest, seen, late>>
Tick == clock < Ends /\ clock' = clock + 1 /\ UNCHANGED <<lock, rows, begun, isOver, me, latest, seen, late>>

Init ==
  /\ lock = Granting(NewItem(0), [Request("TakeAtOnce", X) EXCEPT !.ends = Lease]) /\ rows = <<>>
  /\ clock = 0 /\ begun = 1 /\ isOver = FALSE /\ latest = 1 /\ seen = None /\ late = [count |-> 0, are |-> {}]
  /\ me = [i \in 1 .. Last |-> IF i = 1 THEN Does("runs", Lease) ELSE Gone]
Next ==
  \/ \E i \in 1 .. Last : \E e \in 0 .. Error : \E r \in Choices(i, e) : Send(i, r)
  \/ (\E r \in late.are : ArriveLate(r)) \/ Begin \/ End \/ Read \/ Free \/ Taken \/ Tick
Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
(* What is promised.  An earlier invocation that runs on is fenced off     *)
(* from the lock; its bodies are not ended.                                *)

Relies == me[latest].pc = "runs" /\ me[latest].until > clock
LatestHolds == Relies => IsHeld(lock)
LeaseLastsAsTold == Relies /\ IsHeld(lock) => lock.holders[X].ends >= me[latest].until
IsSuspended == me[latest].pc = "suspended" /\ begun = latest /\ ~isOver /\ me[latest].until >= clock
SuspensionIsKept ==
  IsSuspended => IF IsHeld(lock) THEN lock.holders[X].suspended /\ lock.holders[X].ends >= me[latest].until ELSE FALSE
=============================================================================
