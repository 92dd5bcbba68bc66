------------------------------- MODULE Session ------------------------------
(***************************************************************************)
(* The session item of one execution, in which its functions meet: those   *)
(* that wait, beat, finish, give up, and those of a clean-up; and whether  *)
(* others have shortened the row of its waiter (`isShort`).  Each          *)
(* condition keeps a late or repeated request from replacing a newer one.  *)
(* Requests and conditions have their names from the code                  *)
(* (src/ticketlock/workflow/_session.py and locks/_writes.py).             *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
  Kinds,       \* of requests that are sent
  Last,        \* the greatest number of a grant, and of a request of each kind
  Copies,      \* how many requests arrive late, or never, in one behaviour
  Without      \* conditions that are left out, to see what breaks

VARIABLES
  session,  \* the item; 0 stands for what is not there
  grant,    \* the fencing token that the execution holds, or has held last
  sent,     \* by kind, the number of the last request
  noted,    \* by kind, the number of the last one that was answered
  ended,    \* by grant, when its work ended first; 0 while it runs
  open,     \* the beat whose callback task waits for an answer; 0 for none
  parked,   \* the park whose callback task waits; 0 for none
  late      \* copies of requests, and how many there were
vars == <<session, grant, sent, noted, ended, open, parked, late>>

Request(op) == [op |-> op, n |-> sent[op] + 1, token |-> grant, park |-> session.park]

Requires(r) ==
  CASE r.op = "Beat" -> {"NO_LATER_BEAT"}
    [] r.op = "Finish" -> {"NOT_FINISHED_YET"}
    [] r.op = "Abandon" -> {"NOTHING_LATER_ABANDONED"}
    [] r.op = "Stop" -> {"NOTHING_LATER_STOPPED"}
    [] r.op = "NoteClaim" -> {"NO_CLAIM_YET"}
    [] r.op = "NoteTicket" -> {"NO_LATER_TICKET"}
    [] r.op = "NoteContinuation" -> {"NO_LATER_CONTINUATION"}
    [] r.op = "Park" -> {"NO_LATER_PARK"}
    [] r.op = "ShortenRow" -> {"PARKED_AS_I_SAW"}

Holds(c, r) ==
  CASE c = "NO_LATER_BEAT" -> session.token < r.token \/ (session.token = r.token /\ session.beat <= r.n)
    [] c = "NOT_FINISHED_YET" -> session.finished < r.token
    [] c = "NOTHING_LATER_ABANDONED" -> session.abandoned <= r.token
    [] c = "NOTHING_LATER_STOPPED" -> session.stopped <= r.token
    [] c = "NO_CLAIM_YET" -> session.claim = 0
    [] c = "NO_LATER_TICKET" -> session.ticket < r.n
    [] c = "NO_LATER_CONTINUATION" -> session.continuation <= r.n
    [] c = "NO_LATER_PARK" -> session.park <= r.n
    [] c = "PARKED_AS_I_SAW" -> session.park = r.park

Allows(r) == \A c \in Requires(r) \ Without : Holds(c, r)

NewSession(r) ==
  CASE r.op = "Beat" -> [session EXCEPT !.token = r.token, !.beat = r.n]
    [] r.op = "Finish" -> [session EXCEPT !.finished = r.token, !.finishedAt = r.n]
    [] r.op = "Abandon" -> [session EXCEPT !.abandoned = r.token]
    [] r.op = "Stop" -> [session EXCEPT !.stopped = r.token]
    [] r.op = "NoteClaim" -> [session EXCEPT !.claim = r.n]
    [] r.op = "NoteTicket" -> [session EXCEPT !.ticket = r.n, !.claim = r.n]
    [] r.op = "NoteContinuation" -> [session EXCEPT !.continuation = r.n]
    [] r.op = "Park" -> [session EXCEPT !.park = r.n, !.isShort = FALSE]  \* then it extends its row, if that is short
    [] r.op = "ShortenRow" -> [session EXCEPT !.isShort = TRUE]

----------------------------------------------------------------------------
Arrive(r) == session' = IF Allows(r) THEN NewSession(r) ELSE session

IsOver(s, token) == token <= s.finished \/ token <= s.abandoned \/ token <= s.stopped
Answered(r) ==  \* the task that the function has ended: its own, or, when the work ends, that of the last beat
  CASE r.op = "Beat" -> IF IsOver(session', r.token) THEN r.n ELSE 0
    [] r.op \in {"Finish", "Abandon", "Stop"} -> IF session'.token = r.token THEN session'.beat ELSE 0
    [] OTHER -> 0
Opened(r) == IF r.op = "Beat" THEN r.n ELSE open  \* the task of the beat before has timed out

MaySend(op) ==
  /\ sent[op] < Last
  /\ op \in {"Beat", "Finish", "Abandon", "Stop"} => grant > 0
  /\ op = "Beat" => ended[grant] = 0 \/ open = sent[op]
  /\ op = "ShortenRow" => session.park > 0 /\ session.park # parked  \* the task of that token has ended
Send(op) ==
  LET r == Request(op)
  IN
  /\ MaySend(op) /\ sent' = [sent EXCEPT ![op] = r.n]
  /\ ended' = IF op = "Finish" /\ ended[grant] = 0 THEN [ended EXCEPT ![grant] = r.n] ELSE ended
  /\ \/ /\ Arrive(r) /\ noted' = [noted EXCEPT ![op] = r.n] /\ UNCHANGED late
        /\ open' = IF Answered(r) = Opened(r) THEN 0 ELSE Opened(r)
     \/ /\ late.count < Copies /\ late' = [count |-> late.count + 1, are |-> late.are \cup {r}]
        /\ open' = Opened(r) /\ UNCHANGED <<session, noted>>
  /\ parked' = IF op = "Park" THEN r.n ELSE parked
  /\ UNCHANGED grant
ArriveLate(r) ==
  Arrive(r) /\ late' = [late EXCEPT !.are = @ \ {r}] /\ UNCHANGED <<grant, sent, noted, ended, open, parked>>
TaskEnds == parked > 0 /\ parked' = 0 /\ UNCHANGED <<session, grant, sent, noted, ended, open, late>>
Grant ==  \* the first one, or the next one of a loop, or after a redrive
  /\ grant < Last /\ (IF grant = 0 THEN TRUE ELSE ended[grant] > 0)
  /\ grant' = grant + 1 /\ open' = 0 /\ UNCHANGED <<session, sent, noted, ended, parked, late>>

Init ==
  /\ session = [token |-> 0, beat |-> 0, finished |-> 0, finishedAt |-> 0, abandoned |-> 0, stopped |-> 0, claim |-> 0,
                ticket |-> 0, continuation |-> 0, park |-> 0, isShort |-> FALSE]
  /\ grant = 0 /\ sent = [op \in Kinds |-> 0] /\ noted = [op \in Kinds |-> 0] /\ ended = [g \in 1 .. Last |-> 0]
  /\ open = 0 /\ parked = 0 /\ late = [count |-> 0, are |-> {}]
Next == (\E op \in Kinds : Send(op)) \/ (\E r \in late.are : ArriveLate(r)) \/ Grant \/ TaskEnds
Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
(* What is promised.                                                       *)

WasAnswered(op) == op \in Kinds /\ sent[op] > 0 /\ noted[op] = sent[op]
HeartbeatEnds ==  \* as soon as the functions of the end and of the last beat have returned
  grant > 0 /\ session.finished = grant /\ WasAnswered("Finish") /\ WasAnswered("Beat") => open = 0
EndIsKept ==  \* a repeated end does not change when the work ended first
  [][session.finished > 0 /\ session'.finished = session.finished => session'.finishedAt = session.finishedAt]_vars
NothingNotedIsForgotten ==
  /\ "NoteTicket" \in Kinds => session.ticket >= noted["NoteTicket"]
  /\ "NoteContinuation" \in Kinds => session.continuation >= noted["NoteContinuation"]
  /\ "Park" \in Kinds => session.park >= noted["Park"]
ParkedRowIsWhole ==  \* a waiter sleeps for half of its row's lease
  "Park" \in Kinds /\ parked > 0 => (noted["Park"] = parked => ~session.isShort)
ClaimOfTheTicket == session.ticket > 0 => session.claim = session.ticket
GivenUpStays == [][session'.abandoned >= session.abandoned /\ session'.stopped >= session.stopped]_vars
=============================================================================
