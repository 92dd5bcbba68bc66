------------------------------ MODULE LockTable -----------------------------
(***************************************************************************)
(* One lock in the table: what is stored, and what each request of         *)
(* src/ticketlock/locks requires and does.  TicketLock says who sends      *)
(* which request, and what goes wrong.                                     *)
(*                                                                         *)
(* Times are ticks from now on: a tick lowers each stored time by one, so  *)
(* that time has no end, and a model of it has finitely many states.       *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
  Sharers,     \* the owners that share the lock; the others hold it alone
  Permits,     \* how many of the others may hold it at once
  MostShared,  \* how many sharers may (100 in the code)
  Without,     \* conditions that are left out, to see what breaks
  None

VARIABLES
  lock,  \* the lock item; None if there is none
  rows   \* the queue rows by ticket: the owner, and when its lease ends

Except(f, x) == [y \in DOMAIN f \ {x} |-> f[y]]
One(is) == IF is THEN 1 ELSE 0
Fits(o, p) == (o \in Sharers) = (p \in Sharers)

(* A request that does not use a field leaves it as it is here.            *)
Request(op, o) ==
  [op |-> op, owner |-> o,
   ticket |-> 0,               \* of the row that it writes
   token |-> 0,                \* the owner's, or the last one that was read
   issued |-> 0,               \* the last ticket that was read
   permits |-> 0,              \* that were read
   seen |-> {},                \* leases that were read: pairs of owner and end
   now |-> 0, ends |-> 0,      \* when it is sent, and the end of the lease that it writes
   count |-> 0,                \* by how much it changes the count of waiters
   heals |-> FALSE,            \* whether it makes all tickets void
   shared |-> o \in Sharers,   \* the mode that it claims
   last |-> None, lastToken |-> 0,  \* the holder that it releases
   invocation |-> 0,           \* of a durable execution: when the service ends it; 0 for whoever is none
   passes |-> {}]              \* the tickets in the queue that was read

----------------------------------------------------------------------------
(* What a request requires.                                                *)

AsIRead(r) == {"KNOWN_FORMAT", "NO_GRANT_SINCE_I_READ", "PERMITS_AS_I_SAW", "NOT_A_HOLDER_YET"} \cup
              IF r.seen = {} THEN {} ELSE {"EXPIRED_HOLDER_AS_SEEN"}
Creating == {"TakeAtOnce", "MintTicket", "MintTicketBehind"}
Grants == {"TakeAtOnce", "TakeOver", "TakePastTheCount", "TakeMyTurn", "HandOver"}
Transactions == {"TakeMyTurn", "HandOver", "JoinTogether", "Withdraw"}
OnTheRowAlone == {"PutRow", "ExtendRow", "ShortenRow", "DeleteMyRow", "DeleteStaleRow"}
OfLeases == {"Renew", "WriteWholeLease", "Suspend", "Resume"}
InMode(r) == IF r.shared THEN "I_SHARE" ELSE "I_DO_NOT_SHARE"
OfInvocation(r) == IF r.invocation = 0 THEN {} ELSE {"MINE_IS_THE_LATEST_INVOCATION"}

Requires(r) ==
  CASE r.op = "TakeAtOnce" ->
         {"KNOWN_FORMAT", "NO_WAITER_IS_COUNTED", "NOT_A_HOLDER_YET"} \cup
         IF r.shared THEN {"ALL_HOLDERS_SHARE", "A_SHARED_PLACE_IS_FREE", "NOT_CLOSED"}
         ELSE {"A_PERMIT_IS_FREE", "NO_HOLDER_SHARES"}
    [] r.op = "TakeOver" -> AsIRead(r) \cup {"NO_WAITER_IS_COUNTED"}
    [] r.op = "TakePastTheCount" -> AsIRead(r) \cup {"NO_TICKET_SINCE_I_READ"}
    [] r.op = "TakeMyTurn" ->
         AsIRead(r) \cup {"MY_TICKET_IS_NOT_VOID", "ROW_IS_MINE"} \cup
         IF r.count = 0 THEN {} ELSE {"A_WAITER_IS_COUNTED"}
    [] r.op = "HandOver" ->
         {"KNOWN_FORMAT", "THE_LAST_HOLDS_WITH_ITS_TOKEN", "NO_GRANT_SINCE_I_READ", "MY_TICKET_IS_NOT_VOID",
          "A_WAITER_IS_COUNTED", "NOT_A_HOLDER_YET", "ROW_IS_MINE"} \cup
         {IF r.last \in Sharers THEN "ALL_HOLDERS_SHARE" ELSE "NO_HOLDER_SHARES"} \cup
         IF Fits(r.last, r.owner) THEN {"NO_MORE_HOLD_THAN_MAY"} ELSE {"ONE_HOLDS", "NOT_CLOSED"}
    [] r.op = "MintTicket" -> {"KNOWN_FORMAT", "NOT_A_HOLDER_YET", "MY_TICKET_IS_THE_LATEST"}
    [] r.op = "MintTicketBehind" -> {"KNOWN_FORMAT", "NOT_A_HOLDER_YET"}  \* it has read a later time, and leaves it
    [] r.op = "PutRow" -> {"NO_SUCH_ROW"}
    [] r.op = "JoinTogether" -> {"KNOWN_FORMAT", "NO_TICKET_SINCE_I_READ", "NO_SUCH_ROW"}
    [] r.op = "ExtendRow" -> {"ROW_IS_MINE", "ROW_LEASE_GROWS"}
    [] r.op = "DeleteMyRow" -> {"ROW_IS_MINE"}
    [] r.op \in {"DeleteStaleRow", "ShortenRow"} -> {"ROW_IS_AS_I_SAW"}  \* Session says what a shortening requires, too
    [] r.op = "Withdraw" -> {"A_WAITER_IS_COUNTED", "MY_TICKET_IS_NOT_VOID", "NOT_A_HOLDER_YET", "ROW_IS_MINE"}
    [] r.op = "Renew" -> {"I_HOLD_WITH_MY_TOKEN", "MY_LEASE_IS_NOT_OVER", "MY_LEASE_GROWS"} \cup OfInvocation(r)
    [] r.op = "SetData" -> {"I_HOLD_WITH_MY_TOKEN", "MY_LEASE_IS_NOT_OVER"}  \* which changes nothing that is told here
    [] r.op = "WriteWholeLease" -> {"I_HOLD_WITH_MY_TOKEN", "MY_LEASE_IS_AS_I_SAW"} \cup OfInvocation(r)
    [] r.op = "Release" -> {"I_HOLD_WITH_MY_TOKEN", InMode(r)} \cup OfInvocation(r)
    [] r.op = "Suspend" -> {"I_HOLD_WITH_MY_TOKEN", "MY_LEASE_IS_NOT_OVER"} \cup OfInvocation(r)
    [] r.op = "Resume" ->
         {"I_HOLD_WITH_MY_TOKEN", "MY_LEASE_IS_NOT_OVER", "NO_LATER_INVOCATION_RESUMED"} \cup
         {IF r.seen = {} THEN "I_AM_SUSPENDED_OR_MY_LEASE_GROWS" ELSE "MY_LEASE_IS_AS_I_SAW"}
    [] r.op = "FreeSuspended" -> {"I_HOLD_WITH_MY_TOKEN", InMode(r), "I_AM_SUSPENDED", "MY_LEASE_IS_AS_I_SAW"}
    [] r.op = "Outlive" -> {"KNOWN_FORMAT"}  \* which postpones the time to live
    [] r.op \in {"SetLimit", "UnsetLimit"} -> {"KNOWN_FORMAT"}  \* Permits says what they do with the number

OfRows == {"NO_SUCH_ROW", "ROW_IS_MINE", "ROW_LEASE_GROWS", "ROW_IS_AS_I_SAW"}

Holds(c, r) ==  \* whether a condition of a request holds
  LET mine == lock.holders[r.owner]
      isHolding == r.owner \in DOMAIN lock.holders
      row == rows[r.ticket]
      isThere == r.ticket \in DOMAIN rows
  IN
  CASE c = "KNOWN_FORMAT" -> lock.format = 1
    [] c = "NO_WAITER_IS_COUNTED" -> lock.waiting = 0
    [] c = "A_WAITER_IS_COUNTED" -> lock.waiting > 0
    [] c = "A_PERMIT_IS_FREE" -> lock.held < lock.permits
    [] c = "NO_HOLDER_SHARES" -> lock.heldShared = 0
    [] c = "ALL_HOLDERS_SHARE" -> lock.heldShared = lock.held
    [] c = "A_SHARED_PLACE_IS_FREE" -> lock.held < MostShared
    [] c = "NOT_CLOSED" -> lock.permits > 0
    [] c = "PERMITS_AS_I_SAW" -> lock.permits = r.permits
    [] c = "EXPIRED_HOLDER_AS_SEEN" ->
         \A s \in r.seen : s[1] \in DOMAIN lock.holders /\ lock.holders[s[1]].ends = s[2]
    [] c = "NOT_A_HOLDER_YET" -> ~isHolding
    [] c = "NO_TICKET_SINCE_I_READ" -> lock.issued = r.issued
    [] c = "NO_GRANT_SINCE_I_READ" -> lock.token = r.token
    [] c = "MY_TICKET_IS_THE_LATEST" -> lock.at <= r.now
    [] c = "MY_TICKET_IS_NOT_VOID" -> lock.voidUpTo < r.ticket
    [] c = "THE_LAST_HOLDS_WITH_ITS_TOKEN" ->
         r.last \in DOMAIN lock.holders /\ lock.holders[r.last].token = r.lastToken
    [] c = "ONE_HOLDS" -> lock.held = 1
    [] c = "NO_MORE_HOLD_THAN_MAY" -> lock.held <= lock.permits
    [] c = "I_HOLD_WITH_MY_TOKEN" -> isHolding /\ mine.token = r.token
    [] c = "I_SHARE" -> isHolding /\ mine.shared
    [] c = "I_DO_NOT_SHARE" -> ~(isHolding /\ mine.shared)
    [] c = "MY_LEASE_IS_NOT_OVER" -> isHolding /\ mine.ends > r.now
    [] c = "MY_LEASE_GROWS" -> isHolding /\ mine.ends < r.ends
    [] c = "MY_LEASE_IS_AS_I_SAW" -> isHolding /\ <<r.owner, mine.ends>> \in r.seen
    [] c = "NO_LATER_INVOCATION_RESUMED" -> isHolding /\ mine.invocation < r.invocation
    [] c = "MINE_IS_THE_LATEST_INVOCATION" -> isHolding /\ mine.invocation <= r.invocation
    [] c = "I_AM_SUSPENDED" -> isHolding /\ mine.suspended
    [] c = "I_AM_SUSPENDED_OR_MY_LEASE_GROWS" -> isHolding /\ (mine.suspended \/ mine.ends < r.ends)
    [] c = "NO_SUCH_ROW" -> ~isThere
    [] c = "ROW_IS_MINE" -> isThere /\ row.owner = r.owner
    [] c = "ROW_LEASE_GROWS" -> isThere /\ row.ends < r.ends
    [] c = "ROW_IS_AS_I_SAW" -> isThere /\ <<row.owner, row.ends>> \in r.seen

LockAllows(r) ==
  \/ r.op \in OnTheRowAlone
  \/ lock = None /\ r.op \in Creating /\ "NO_LOCK_ITEM" \notin Without
  \/ lock # None /\ \A c \in Requires(r) \ (OfRows \cup Without) : Holds(c, r)
RowAllows(r) == \A c \in (Requires(r) \cap OfRows) \ Without : Holds(c, r)
Allows(r) == LockAllows(r) /\ RowAllows(r)

----------------------------------------------------------------------------
(* What it does if it is allowed.                                          *)

NewItem(epoch) ==  \* tickets and tokens rise, also after time to live has deleted an earlier item
  [format |-> 1, issued |-> epoch, waiting |-> 0, at |-> -1, voidUpTo |-> epoch, token |-> epoch, permits |-> Permits,
   held |-> 0, heldShared |-> 0, holders |-> <<>>]

Granting(l, r) ==
  LET gone == {s[1] : s \in r.seen}
      holder == [token |-> l.token + 1, ends |-> r.ends, shared |-> r.shared, suspended |-> FALSE, invocation |-> 0]
  IN  [l EXCEPT !.token = @ + 1, !.held = @ + 1 - Cardinality(gone),
                !.heldShared = @ + One(r.shared) - Cardinality(gone \cap Sharers),
                !.holders = r.owner :> holder @@ [h \in DOMAIN @ \ gone |-> @[h]]]
Releasing(l, o, isShared) ==
  [l EXCEPT !.held = @ - 1, !.heldShared = @ - One(isShared), !.holders = Except(@, o)]

NewLock(r, epoch) ==
  LET l == IF lock = None THEN NewItem(epoch) ELSE lock
  IN
  CASE r.op \in {"TakeAtOnce", "TakeOver"} -> Granting([l EXCEPT !.issued = @ + 1], r)
    [] r.op = "TakePastTheCount" ->
         Granting([l EXCEPT !.issued = @ + 1, !.waiting = IF r.heals THEN 0 ELSE @,
                            !.voidUpTo = IF r.heals THEN r.issued ELSE @], r)
    [] r.op = "TakeMyTurn" -> Granting([l EXCEPT !.waiting = @ - r.count], r)
    [] r.op = "HandOver" -> Granting(Releasing([l EXCEPT !.waiting = @ - 1], r.last, r.last \in Sharers), r)
    [] r.op = "MintTicket" -> [l EXCEPT !.issued = @ + 1, !.waiting = @ + 1, !.at = r.now]
    [] r.op = "MintTicketBehind" ->
         [l EXCEPT !.issued = @ + 1, !.waiting = @ + 1, !.at = IF lock = None THEN r.now ELSE @]
    [] r.op = "JoinTogether" ->
         [l EXCEPT !.issued = @ + 1, !.waiting = @ + r.count, !.at = IF @ > r.now THEN @ ELSE r.now]
    [] r.op = "Withdraw" -> [l EXCEPT !.waiting = @ - 1]
    [] r.op \in OfLeases ->
         IF r.owner \notin DOMAIN l.holders THEN l
         ELSE [l EXCEPT !.holders[r.owner] =
                 [@ EXCEPT !.ends = r.ends, !.invocation = IF r.invocation = 0 THEN @ ELSE r.invocation,
                           !.suspended = IF r.op \in {"Suspend", "Resume"} THEN r.op = "Suspend" ELSE @]]
    [] r.op \in {"Release", "FreeSuspended"} -> Releasing(l, r.owner, r.shared)
    [] r.op = "SetLimit" -> l
    [] OTHER -> lock

NewRows(r) ==
  CASE r.op \in {"PutRow", "JoinTogether"} -> r.ticket :> [owner |-> r.owner, ends |-> r.ends] @@ rows
    [] r.op \in {"ExtendRow", "ShortenRow"} ->
         IF r.ticket \in DOMAIN rows THEN [rows EXCEPT ![r.ticket].ends = r.ends] ELSE rows
    [] r.op \in {"TakeMyTurn", "HandOver", "Withdraw", "DeleteMyRow", "DeleteStaleRow"} -> Except(rows, r.ticket)
    [] OTHER -> rows
=============================================================================
