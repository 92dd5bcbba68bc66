----------------------------- MODULE TicketLock -----------------------------
(***************************************************************************)
(* The ticket lock of docs/how-it-works.md: what its owners do with the    *)
(* requests of LockTable, what goes wrong, and what is promised all the    *)
(* same.  Requests and conditions have their names from the code.          *)
(* `make spec` checks it, and checks it without each condition.            *)
(***************************************************************************)
EXTENDS LockTable

CONSTANTS
  Owners,      \* each is one acquisition
  Lease,       \* how long a grant, or a row, is valid
  RowLease,    \* how long the row of a waiter far behind is
  Limits,      \* the permits that an operator may set
  Error,       \* by how much a process may be wrong about the table's time
  Tickets,     \* no ticket after this one is minted
  Slow,        \* how many requests may be on their way at once; the others arrive at once
  Faults,      \* each happens at most once
  MostFaults   \* of all of them

VARIABLES
  me,      \* what each owner knows, and the request that it has sent
  late,    \* copies of requests, which arrive at any time, or never
  torn,    \* a read, or a transaction, that has not come to its end; None without one
  faults,  \* those that may still happen
  past     \* the greatest ticket or token; how often rows were overtaken; whether one was swept that had not expired
vars == <<lock, rows, me, late, torn, faults, past>>

Max(a, b) == IF a > b THEN a ELSE b
Once(f) == f \in faults /\ Cardinality(Faults \ faults) < MostFaults /\ faults' = faults \ {f}

----------------------------------------------------------------------------
(* Time.  A process knows the table's time but for an error e: it writes   *)
(* leases from the upper bound, and judges them by the lower one.          *)

LongOver == -(Error + 1)
IsOver(ends, e) == ends < -e
Later(t) == Max(t - 1, LongOver)
LaterRequest(r) == [r EXCEPT !.now = Later(@), !.ends = Later(@), !.seen = {<<s[1], Later(s[2])>> : s \in @}]
LaterLock(l) ==
  IF l = None THEN None
  ELSE [l EXCEPT !.at = Later(@), !.holders = [h \in DOMAIN @ |-> [@[h] EXCEPT !.ends = Later(@)]]]

----------------------------------------------------------------------------
(* What a reader finds: the items as they are.  But while a transaction    *)
(* is being applied, all but its sender may find some items as they were,  *)
(* and between the parts of a slow read others write.                      *)

Now == [lock |-> lock, rows |-> rows]
Unapplied == IF torn.row = None THEN Except(rows, torn.ticket) ELSE torn.ticket :> torn.row @@ rows
Views(o) ==
  IF torn = None THEN {Now}
  ELSE IF torn.isRead THEN {IF torn.who = o THEN [lock |-> torn.lock, rows |-> rows] ELSE Now}
  ELSE IF torn.who = o THEN {Now}
  ELSE {[lock |-> l, rows |-> q] : l \in {lock, torn.lock}, q \in {rows, Unapplied}}
EndRead(o) == torn' = IF torn # None /\ torn.isRead /\ torn.who = o THEN None ELSE torn

Holding(l) == IF l = None THEN {} ELSE DOMAIN l.holders
IsVoid(v, t) == v.lock = None \/ t <= v.lock.voidUpTo
Owned(v, o) == {t \in DOMAIN v.rows : v.rows[t].owner = o}
Mine(v, o) == {t \in Owned(v, o) : ~IsVoid(v, t)}
Live(v, o, e) ==
  {t \in DOMAIN v.rows \ Owned(v, o) :
     /\ ~IsVoid(v, t) /\ ~IsOver(v.rows[t].ends, e)
     /\ v.rows[t].owner \in Holding(v.lock) => t > v.lock.issued}  \* then the lock item was read before
Stale(v, o, e) == DOMAIN v.rows \ (Mine(v, o) \cup Live(v, o, e))
Before(v, o, t, e) == {b \in Live(v, o, e) : b < t}
Expired(v, e) == {h \in Holding(v.lock) : IsOver(v.lock.holders[h].ends, e)}

Capacity(l, o) == IF o \notin Sharers THEN l.permits ELSE IF l.permits > 0 THEN MostShared ELSE 0
Room(v, o, e) ==
  LET others == Holding(v.lock) \ Expired(v, e)
  IN  IF \A h \in others : Fits(o, h) THEN Capacity(v.lock, o) - Cardinality(others) ELSE 0
MayEnter(v, o, t, e) ==
  /\ \A b \in Before(v, o, t, e) : Fits(o, v.rows[b].owner)
  /\ Cardinality(Before(v, o, t, e)) < Room(v, o, e)

----------------------------------------------------------------------------
(* What an owner may send, after it has read the view v.                   *)

OnRow(op, o, t) == [Request(op, o) EXCEPT !.ticket = t]
Leased(op, o, e) == [Request(op, o) EXCEPT !.now = e, !.ends = Lease + e]
WithToken(r) == [r EXCEPT !.token = me[r.owner].token]
AsRead(r, v, e) ==
  [r EXCEPT !.token = v.lock.token, !.issued = v.lock.issued, !.permits = v.lock.permits,
            !.seen = {<<h, v.lock.holders[h].ends>> : h \in Expired(v, e)}]
Sweeps(o, v, e) ==
  {[OnRow("DeleteStaleRow", o, t) EXCEPT !.seen = {<<v.rows[t].owner, v.rows[t].ends>>}] : t \in Stale(v, o, e)}
Shortens(o, v, e) ==  \* of one whose task has ended, as far as who wakes it knows: it may be about to come again
  {[Leased("ShortenRow", o, e) EXCEPT !.ticket = t, !.seen = {<<v.rows[t].owner, v.rows[t].ends>>}]
   : t \in {u \in Live(v, o, e) : RowLease > Lease /\ v.rows[u].ends > Lease + e}}
MayMint == lock = None \/ lock.issued < Tickets

ToAsk(o, v, e) ==
  LET isFirst == me[o].ticket = 0
      isFree == isFirst /\ v.lock # None /\ Room(v, o, e) > 0 /\ Mine(v, o) = {} /\ Live(v, o, e) = {}
      \* The code leaves a time of the last second, too, and counts a ticket as old a second later: less than a tick.
      isLatest == IF v.lock = None THEN TRUE ELSE v.lock.at <= e
      isOld == v.lock # None /\ IsOver(v.lock.at, e)  \* a row of the last ticket would be there by now
  IN  IF ~MayMint THEN {} ELSE
      {Leased(IF isLatest THEN "MintTicket" ELSE "MintTicketBehind", o, e)}
      \cup (IF isFirst THEN {Leased("TakeAtOnce", o, e)} ELSE {})
      \cup (IF isFree /\ v.lock.waiting = 0 THEN {AsRead(Leased("TakeOver", o, e), v, e)} ELSE {})
      \cup (IF isFree /\ v.lock.waiting > 0 THEN
              {[AsRead(Leased("TakePastTheCount", o, e), v, e) EXCEPT !.heals = isOld /\ Stale(v, o, e) = {}]}
            ELSE {})
      \cup (IF isFree /\ isOld THEN Sweeps(o, v, e) ELSE {})

ToJoin(o, v, e) ==  \* in time; else together with another ticket
  IF me[o].ends >= 0 THEN {[Leased("PutRow", o, e) EXCEPT !.ticket = me[o].ticket]}
  ELSE IF v.lock = None \/ ~MayMint THEN {}
  ELSE {[Leased("JoinTogether", o, e) EXCEPT !.issued = v.lock.issued, !.ticket = v.lock.issued + 1,
           !.count = One(~(me[o].sure /\ me[o].ticket > v.lock.voidUpTo))]}

ToWait(o, v, e) ==
  LET mine == Mine(v, o)
      ticket == CHOOSE t \in mine : \A other \in mine : t <= other
      surplus == (mine \cup {me[o].ticket}) \ {ticket}
      turn == [AsRead(Leased("TakeMyTurn", o, e), v, e) EXCEPT !.ticket = ticket, !.count = One(v.lock.waiting > 0)]
  IN  {OnRow("Withdraw", o, me[o].ticket)}
      \cup IF mine = {} THEN {OnRow("DeleteMyRow", o, me[o].ticket)}
           ELSE IF surplus # {} THEN {OnRow("DeleteMyRow", o, t) : t \in surplus}
           ELSE IF Cardinality(Before(v, o, ticket, e)) < 2 /\ Stale(v, o, e) # {} THEN Sweeps(o, v, e)
           ELSE (IF MayEnter(v, o, ticket, e) THEN {turn} ELSE {})
                \cup {[Leased("ExtendRow", o, e) EXCEPT !.ticket = ticket, !.ends = l + e]
                      : l \in {each \in {Lease, RowLease} : v.rows[ticket].ends < each}}
                \cup Shortens(o, v, e)

IsNext(v, w, t, o, e) ==  \* whether o may hand its lock over to w, whose poll has found v
  /\ w # o /\ t \in Mine(v, w) /\ me[w].pc = "waits" /\ me[w].ask = None /\ Before(v, w, t, e) = {}
  /\ o \in Holding(v.lock) /\ v.lock.holders[o].token = me[o].token /\ ~(o \in Sharers /\ w \in Sharers)
ToHold(o, v, e) ==
  {WithToken(Request("Release", o))} \cup Shortens(o, v, e)
  \cup (IF me[o].ends < Lease THEN {WithToken(Leased("Renew", o, e))} ELSE {})
  \cup {[Leased("HandOver", v.rows[t].owner, e) EXCEPT
           !.ticket = t, !.token = v.lock.token, !.last = o, !.lastToken = me[o].token]
        : t \in {u \in DOMAIN v.rows : IsNext(v, v.rows[u].owner, u, o, e)}}

IsToReport(o, v) == me[o].pc \in {"asks", "minted", "waits"} /\ o \in Holding(v.lock)
Choices(o, v, e) ==
  CASE IsToReport(o, v) -> {OnRow("DeleteMyRow", o, t) : t \in Owned(v, o)}
    [] me[o].pc = "asks" -> ToAsk(o, v, e)
    [] me[o].pc = "minted" -> ToJoin(o, v, e)
    [] me[o].pc = "waits" -> ToWait(o, v, e)
    [] me[o].pc = "granted" -> {[WithToken(Leased("WriteWholeLease", o, e)) EXCEPT !.seen = {<<o, me[o].ends>>}]}
    [] me[o].pc = "holds" -> ToHold(o, v, e)
    [] me[o].pc = "frees" -> {WithToken(Request("Release", o))}
    [] me[o].pc = "leaves" -> {OnRow("DeleteMyRow", o, me[o].ticket)}
    [] OTHER -> {}

----------------------------------------------------------------------------
(* A request arrives.                                                      *)

IsWaiting(o) == me[o].pc \in {"minted", "waits"}
Waiting == {t \in DOMAIN rows : ~IsVoid(Now, t) /\ rows[t].owner \notin Holding(lock) /\ IsWaiting(rows[t].owner)}
IsOvertaken(t, r, known) ==  \* whether a grant leaves no room for a row before it, beside the known ones
  LET after == NewLock(r, past.top)
      first == {u \in Waiting \cap known : u <= t /\ u # r.ticket}
  IN  /\ t \in Waiting \cap known /\ (r.ticket = 0 \/ t < r.ticket) /\ rows[t].owner # r.owner
      /\ ~Fits(rows[t].owner, r.owner) \/ Cardinality(first) > Capacity(after, r.owner) - after.held
Overtakes(t, r) ==  \* twice if it was requested after a read of that row
  IF r.op \notin Grants THEN 0
  ELSE IF IsOvertaken(t, r, r.passes) THEN 2 ELSE One(IsOvertaken(t, r, DOMAIN rows))
Past(r) ==
  [top |-> IF lock' = None THEN past.top ELSE Max(past.top, Max(lock'.issued, lock'.token)),
   overtaken |->  \* of a row that has expired once, nothing is promised
     [t \in DOMAIN rows' |-> IF t \in DOMAIN rows THEN past.overtaken[t] + Overtakes(t, r)
                              ELSE IF r.ends > 0 THEN 0 ELSE -9],
   isEvicted |-> past.isEvicted \/ (r.op = "DeleteStaleRow" /\ r.ticket \in Waiting /\ rows[r.ticket].ends >= 0)]

Conflicts(r) ==
  IF torn = None THEN FALSE ELSE ~torn.isRead /\ (r.op \notin OnTheRowAlone \/ r.ticket = torn.ticket)
Arrive(r) ==
  /\ ~Conflicts(r)
  /\ IF Allows(r) THEN lock' = NewLock(r, past.top) /\ rows' = NewRows(r) /\ past' = Past(r)
     ELSE UNCHANGED <<lock, rows, past>>

(* What an owner makes of the reply.  It is told of no grant that has less than a whole lease left.  *)
Granted(k, token, ends) ==
  [k EXCEPT !.token = token, !.ends = ends, !.pc = IF ends >= Lease THEN "holds" ELSE "granted"]
Back(k) == [k EXCEPT !.token = 0, !.ends = LongOver, !.pc = IF k.ticket = 0 THEN "asks" ELSE "waits"]
Waits(k, ticket) == [k EXCEPT !.ticket = ticket, !.ends = LongOver, !.pc = "waits"]
Frees(k) == [k EXCEPT !.ends = LongOver, !.pc = "frees"]
Ended(k, pc) == [k EXCEPT !.ticket = 0, !.token = 0, !.ends = LongOver, !.pc = pc]

Replied(o, r, isApplied, byTheLock) ==
  LET k == [me[o] EXCEPT !.ask = None]
      isHolding == o \in Holding(lock')
      mine == lock'.holders[o]
      isHeld == isHolding /\ mine.token = r.token /\ mine.ends >= r.ends
      hasRow == r.ticket \in DOMAIN rows' /\ rows'[r.ticket].owner = o
  IN
  CASE r.op \in Grants \ {"HandOver"} -> IF isApplied THEN Granted(k, lock'.token, r.ends) ELSE k
    [] r.op \in {"MintTicket", "MintTicketBehind"} ->
         IF isApplied THEN [k EXCEPT !.pc = "minted", !.ticket = lock'.issued, !.ends = r.now] ELSE k
    [] r.op = "PutRow" -> IF hasRow THEN Waits(k, r.ticket) ELSE [k EXCEPT !.ends = LongOver]
    [] r.op = "JoinTogether" -> IF hasRow THEN Waits(k, r.ticket) ELSE k
    [] r.op = "ExtendRow" -> IF hasRow THEN k ELSE [k EXCEPT !.pc = "asks"]
    [] r.op = "DeleteMyRow" -> IF k.pc = "leaves" THEN Ended(k, "gone")
                               ELSE IF k.pc = "waits" /\ r.ticket = k.ticket THEN [k EXCEPT !.pc = "asks"] ELSE k
    [] r.op = "Withdraw" -> IF byTheLock /\ isHolding THEN Granted(k, mine.token, mine.ends)
                            ELSE IF byTheLock THEN [k EXCEPT !.pc = "leaves"] ELSE Ended(k, "gone")
    [] r.op = "Renew" -> IF isApplied \/ isHeld THEN [k EXCEPT !.ends = r.ends] ELSE Ended(k, "lost")
    [] r.op = "WriteWholeLease" ->
         IF isApplied \/ (isHeld /\ mine.ends = r.ends) THEN Granted(k, r.token, r.ends) ELSE Back(k)
    [] r.op = "Release" -> Ended(k, "gone")
    [] r.op = "HandOver" -> IF isApplied THEN Ended(k, "gone") ELSE Frees(k)
    [] OTHER -> k

Performed(r, o) ==  \* the request of o arrives, and o is told; by a release also who has got the lock
  LET told == [me EXCEPT ![o] = Replied(o, r, Allows(r), ~LockAllows(r))]
      next == me[r.owner]
  IN  /\ Arrive(r)
      /\ \/ me' = told
         \/ /\ r.op = "HandOver" /\ Allows(r) /\ next.pc = "waits" /\ next.ask = None /\ next.ticket = r.ticket
            /\ me' = [told EXCEPT ![r.owner] = Granted(next, lock'.token, r.ends)]

----------------------------------------------------------------------------
(* What happens.                                                           *)

Asking(o, r, ask, sure) ==  \* who releases the lock does not rely on it any more
  LET k == IF r.op \in {"Release", "HandOver"} THEN Frees(me[o]) ELSE me[o]
  IN  [me EXCEPT ![o] = [k EXCEPT !.ask = ask, !.sure = sure]]
DependsOnItsRead(r) ==
  r.op \in Transactions \cup {"TakeOver", "TakePastTheCount", "DeleteStaleRow", "ShortenRow", "WriteWholeLease"}

Send(o, v, e) ==
  /\ me[o].ask = None
  /\ \E choice \in Choices(o, v, e) :
       LET r == [choice EXCEPT !.passes = IF choice.op \in Grants THEN DOMAIN v.rows ELSE {}]
       IN
       \/ Performed(r, o) /\ UNCHANGED <<late, faults>>
       \/ /\ Cardinality({p \in Owners : me[p].ask # None}) < Slow  \* it is on its way for a while
          /\ IF DependsOnItsRead(r) THEN UNCHANGED faults ELSE Once("slow request")
          /\ me' = Asking(o, r, r, me[o].sure) /\ UNCHANGED <<lock, rows, late, past>>
       \/ /\ Once("late")  \* its sender gives it up, and it arrives later, or never
          /\ late' = late \cup {r} /\ me' = Asking(o, r, None, FALSE) /\ UNCHANGED <<lock, rows, past>>
       \/ /\ Once("repeat")  \* the reply is lost, and its sender repeats it
          /\ Arrive(r) /\ me' = Asking(o, r, r, me[o].sure) /\ UNCHANGED late
       \/ /\ r.op = "Release" /\ Once("wrong mode")  \* its caller claims the other mode, is refused, and tries again
          /\ Arrive([r EXCEPT !.shared = ~@]) /\ me' = Asking(o, r, None, me[o].sure) /\ UNCHANGED late
  /\ EndRead(o)

Perform(o) == me[o].ask # None /\ Performed(me[o].ask, o) /\ UNCHANGED <<late, torn, faults>>

Report(o, v) ==  \* a poll finds that its owner holds the lock, or that its row is gone, or there after all
  /\ me[o].ask = None
  /\ \/ /\ IsToReport(o, v) /\ Owned(v, o) = {}
        /\ me' = [me EXCEPT ![o] = Granted(@, v.lock.holders[o].token, v.lock.holders[o].ends)]
     \/ /\ me[o].pc = "waits" /\ o \notin Holding(v.lock) /\ me[o].ticket \notin DOMAIN v.rows
        /\ me' = [me EXCEPT ![o].pc = "asks"]
     \/ /\ me[o].pc = "asks" /\ Mine(v, o) # {}
        /\ me' = [me EXCEPT ![o] = Waits(@, CHOOSE t \in Mine(v, o) : TRUE)]
  /\ EndRead(o) /\ UNCHANGED <<lock, rows, late, faults, past>>

Crash(o) ==
  /\ me[o].pc \notin {"gone", "lost", "dead"} /\ Once("crash")
  /\ late' = late \cup ({me[o].ask} \ {None}) /\ me' = [me EXCEPT ![o] = [Ended(@, "dead") EXCEPT !.ask = None]]
  /\ UNCHANGED <<lock, rows, torn, past>>
ArriveLate(r) == Arrive(r) /\ late' = late \ {r} /\ UNCHANGED <<me, torn, faults>>
ReadSlowly(o) ==
  /\ me[o].pc \notin {"gone", "lost", "dead"} /\ me[o].ask = None /\ torn = None /\ Once("slow read")
  /\ torn' = [isRead |-> TRUE, who |-> o, lock |-> lock, ticket |-> 0, row |-> None]
  /\ UNCHANGED <<lock, rows, me, late, past>>
ApplySlowly(o) ==  \* the service has decided a transaction, and has not applied it to all items yet
  /\ me[o].ask # None /\ me[o].ask.op \in Transactions /\ torn = None /\ Once("slow transaction")
  /\ Performed(me[o].ask, o)
  /\ LET t == me[o].ask.ticket
     IN  torn' = [isRead |-> FALSE, who |-> o, lock |-> lock, ticket |-> t,
                  row |-> IF t \in DOMAIN rows THEN rows[t] ELSE None]
  /\ UNCHANGED late
Applied == torn # None /\ ~torn.isRead /\ torn' = None /\ UNCHANGED <<lock, rows, me, late, faults, past>>
TimeToLive ==  \* weeks after every lease has ended
  /\ lock # None /\ Once("ttl") /\ lock' = None
  /\ \A h \in DOMAIN lock.holders : lock.holders[h].ends = LongOver
  /\ \A t \in DOMAIN rows : rows[t].ends = LongOver
  /\ UNCHANGED <<rows, me, late, torn, past>>
SetLimit ==
  /\ lock # None /\ Once("limit") /\ \E n \in Limits : lock' = [lock EXCEPT !.permits = n]
  /\ UNCHANGED <<rows, me, late, torn, past>>
Upgrade ==
  lock # None /\ Once("newer version") /\ lock' = [lock EXCEPT !.format = 2] /\ UNCHANGED <<rows, me, late, torn, past>>

Tick ==
  /\ lock' = LaterLock(lock) /\ rows' = [t \in DOMAIN rows |-> [rows[t] EXCEPT !.ends = Later(@)]]
  /\ me' = [o \in Owners |-> [me[o] EXCEPT !.ends = Later(@), !.ask = IF @ = None THEN None ELSE LaterRequest(@)]]
  /\ late' = {LaterRequest(r) : r \in late}
  /\ torn' = IF torn = None THEN None
             ELSE [torn EXCEPT !.lock = LaterLock(@), !.row = IF @ = None THEN None ELSE [@ EXCEPT !.ends = Later(@)]]
  /\ past' = [past EXCEPT !.overtaken = [t \in DOMAIN rows |-> IF rows[t].ends > 0 THEN @[t] ELSE -9]]
  /\ UNCHANGED faults

Init ==
  /\ lock = None /\ rows = <<>> /\ late = {} /\ torn = None /\ faults = Faults
  /\ past = [top |-> 0, overtaken |-> <<>>, isEvicted |-> FALSE]
  /\ me = [o \in Owners |-> [pc |-> "asks", ticket |-> 0, token |-> 0, ends |-> LongOver, ask |-> None, sure |-> TRUE]]
Next ==
  \/ \E o \in Owners : \/ \E v \in Views(o) : Report(o, v) \/ \E e \in 0 .. Error : Send(o, v, e)
                       \/ Perform(o) \/ Crash(o) \/ ReadSlowly(o) \/ ApplySlowly(o)
  \/ \E r \in late : ArriveLate(r)
  \/ Applied \/ TimeToLive \/ SetLimit \/ Upgrade \/ Tick
Spec == Init /\ [][Next]_vars
Symmetry == Permutations(Owners)

(* Who lives takes its turn, sweeps, frees the lock, extends its row in time, and learns in time of its grant. *)
Acts(o) == \E v \in Views(o) : Report(o, v) \/ \E e \in 0 .. Error : Send(o, v, e)
InTime ==
  /\ \A t \in DOMAIN rows \cap DOMAIN rows' : me[rows[t].owner].pc = "waits" => rows'[t].ends > 0
  /\ \A h \in Holding(lock) \cap Holding(lock') : me[h].pc = "waits" => lock'.holders[h].ends > 0
Extends == \E t \in DOMAIN rows \cap DOMAIN rows' : rows'[t].ends > rows[t].ends
Fair(o) ==
  /\ WF_vars(Perform(o)) /\ WF_vars(\E v \in Views(o) : Report(o, v))
  /\ SF_vars(Acts(o) /\ me[o].pc \in {"asks", "waits", "granted"} /\ me'[o].pc \in {"granted", "holds"})
  /\ SF_vars(Acts(o) /\ me[o].pc \in {"holds", "frees"} /\ me'[o].pc = "gone")
  /\ SF_vars(Acts(o) /\ Cardinality(DOMAIN rows') < Cardinality(DOMAIN rows))
  /\ SF_vars(Acts(o) /\ me[o].pc = "waits" /\ Extends)
FairSpec == Init /\ [][Next /\ InTime]_vars /\ WF_vars(Tick /\ InTime) /\ \A o \in Owners : Fair(o)

----------------------------------------------------------------------------
(* What is promised.                                                       *)

Relying == {o \in Owners : me[o].pc = "holds" /\ me[o].ends > 0}
Exclusion == \/ Relying \subseteq Sharers /\ Cardinality(Relying) <= MostShared
             \/ Relying \cap Sharers = {} /\ Cardinality(Relying) <= Permits
NoHolderEvicted == \A o \in Relying : o \in Holding(lock) /\ lock.holders[o].token = me[o].token
NoRowEvicted == ~past.isEvicted
IsMadeAgain == "ttl" \in Faults \ faults  \* a new lock item has none of the earlier tickets
NoFreshTicketVoid ==  \* whose row is in time, and may be on its way
  ~IsMadeAgain =>
    \A o \in Owners : me[o].pc = "minted" /\ me[o].ends >= 0 /\ lock # None => lock.voidUpTo < me[o].ticket
NoOvertaking == \A t \in DOMAIN rows : past.overtaken[t] <= 1
IsLeaving(o) == IF me[o].ask = None THEN FALSE ELSE me[o].ask.op = "Withdraw"
InTheQueue == {t \in Waiting : past.overtaken[t] >= 0 /\ ~IsLeaving(rows[t].owner)}  \* and whose row has never expired
Counts == lock # None => /\ lock.waiting >= Cardinality(InTheQueue) /\ lock.held = Cardinality(Holding(lock))
                         /\ lock.heldShared = Cardinality({h \in Holding(lock) : lock.holders[h].shared})
ToldOfTheGrant == \A o \in Owners : me[o].pc = "holds" /\ me[o].sure => Owned(Now, o) = {}
ToldThatItHasLeft == \A o \in Owners : me[o].pc = "gone" /\ me[o].sure => o \notin Holding(lock)

Liveness ==
  /\ <>(lock # None)
  /\ \A o \in Owners :
       me[o].pc = "waits" /\ Mine(Now, o) # {} ~> me[o].pc \in {"granted", "holds", "gone", "lost", "dead"}

Came == Holding(lock') \ Holding(lock)
Stayed == Holding(lock) \cap Holding(lock')
TokensRise == [][\A h \in Came : lock'.holders[h].token > IF lock = None THEN past.top ELSE lock.token]_vars
LeasesGrow == [][Tick \/ /\ \A h \in Stayed : lock'.holders[h].ends >= lock.holders[h].ends
                         /\ RowLease = Lease =>  \* longer ones are shortened
                              \A t \in DOMAIN rows \cap DOMAIN rows' : rows'[t].ends >= rows[t].ends]_vars
NoLeaseRevived ==
  [][\A h \in Stayed : me[h].pc = "holds" /\ lock.holders[h].ends < 0 => lock'.holders[h].ends <= 0]_vars
NewerFormatStays ==  \* an older version grants nothing, and mints no ticket; who holds may leave
  [][lock # None /\ lock.format > 1 /\ lock' # None => lock'.token = lock.token /\ lock'.issued = lock.issued]_vars
RoomForEachGrant ==
  [][\A h \in Came :
       LET holding == {g \in Holding(lock') : lock'.holders[g].ends > 0}
       IN  /\ lock'.permits > 0 /\ \A g \in holding : Fits(g, h)
           /\ Cardinality(holding) <= Capacity(lock', h)]_vars
=============================================================================
