"""The session item, through which a Step Functions heartbeat and the release coordinate.

A Parallel state waits for all its branches, so when the work ends the heartbeat's callback task must be ended. The two
run in either order. The heartbeat writes its task token into the session, and reads in the same request whether the
work is finished; the release writes that the work is finished, **then** frees the lock, and reads the task token. Both
write the same item, so whichever comes second sees the other and answers the task.

Only the grant's own fencing token counts: a session may outlive a grant (loops, redrive), so tokens are compared, never
flags.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ticketlock.errors import LockLost
from ticketlock.locks import (
    THE_CLAIM,
    Claim,
    Contender,
    Hold,
    LockName,
    Released,
    Releasing,
    Session,
    find_session,
    integer_if_there,
    on_the_session,
    only_if,
    reads,
    session_expires_at_s,
    the_claim,
)
from ticketlock.wire import Item, Steps, TaskAnswer, Write, integer, number

_LONGEST_WAIT_S = 370 * 24 * 3_600


@dataclass(frozen=True, slots=True)
class LastBeat:
    """How the last beat of an execution ends its task: with an error by which the state machine continues."""

    error: str
    cause: str


def beat(
    me: Contender, held: Hold, session: Session, task_token: str, beat_number: int, last: LastBeat | None = None
) -> Steps[Hold]:
    """One heartbeat of a callback task: renew the lease, store the task's token, end the task if it is due.

    Args:
        task_token: the callback task's; each retry of the task brings a new one, and only the newest counts.
        beat_number: rises from beat to beat, also across continuations and if the state is entered again. A beat with a
            fresh lease only stores its token.
        last: if given, the task is ended with it, unless the work has ended.

    Returns:
        The grant with its newest lease. A beat older than the newest stores no token, and still answers its own task.
        If the lock is lost, the task was failed with ``LockLost``, and this raises it.
    """
    lost: LockLost | None = None
    if not _is_fresh(me, held):
        # Do not renew for work that has ended.
        item = yield from find_session(me, session)
        if _is_over(item, held.fencing_token):
            return (yield from _answer_the_end(me, held, item, task_token))
        held, lost = yield from _renewed(me, held)
    # If the lease is lost keep the stored one: the release compares it with the end of the work.
    lease = "leaseUntilMs = :lease_until, " if lost is None else ""
    update = f"SET taskToken = :task_token, beat = :beat, fencingToken = :token, {lease}expiresAt = :expires_at"
    more = {
        ":task_token": {"S": task_token},
        ":beat": number(beat_number),
        ":lease_until": number(held.lease_until_ms),
    }
    reply = yield from me.send(_about_the_hold(me, held, session, update, only_if.NO_LATER_BEAT, more))
    if _is_over(reply.item, held.fencing_token):
        return (yield from _answer_the_end(me, held, reply.item, task_token))
    if lost is not None:
        yield from me.send(TaskAnswer(task_token, type(lost).__name__, str(lost)))
        raise lost
    if last is not None:
        yield from me.send(TaskAnswer(task_token, last.error, last.cause))
    return held


def _answer_the_end(me: Contender, held: Hold, item: Item | None, task_token: str) -> Steps[Hold]:
    """The work has ended, or the execution was cleaned up: end the task, with ``LockLost`` if the lock is lost."""
    lost: LockLost | None = None
    if _number(item, "unreleasedToken") == held.fencing_token:
        lost = yield from _release_in_place(me, held)
    elif (_number(item, "stoppedToken") or 0) >= held.fencing_token:
        lost = LockLost(f"the execution was stopped while it held the lock with fencing token {held.fencing_token}")
    if lost is not None:
        yield from me.send(TaskAnswer(task_token, type(lost).__name__, str(lost)))
        raise lost
    yield from me.send(TaskAnswer(task_token))
    return held


def finish(me: Contender, held: Hold, session: Session) -> Steps[Released]:
    """The work has ended: record it in the session, free the lock, end the heartbeat.

    If the lease had ended before the work did, it raises ``LockLost``, and the heartbeat is failed with that name.
    """
    update = "SET finishedToken = :token, finishedAtMs = :now, expiresAt = :expires_at"
    reply = yield from me.send(_about_the_hold(me, held, session, update, only_if.NOT_FINISHED_YET))
    item = reply.item
    # Recorded by the first try of this release, before its first request.
    finished_at_ms = _number(item, "finishedAtMs")
    task_token = _task_token(item, held.fencing_token)
    if task_token is not None:
        held = replace(held, lease_until_ms=max(held.lease_until_ms, _number(item, "leaseUntilMs") or 0))
    lost: LockLost | None = None
    released = None
    if _number(item, "finishedToken") == held.fencing_token:
        try:
            # An earlier call of the function recorded that the work is finished, and may have done more.
            tried_before = not reply.applied or reply.repeated
            released = yield from me.release(held, finished_at_ms, releasing=Releasing(tried_before=tried_before))
        except LockLost as error:
            lost = error
    if lost is None and (released is None or released.lease_was_over):
        lost = LockLost(f"the lease of fencing token {held.fencing_token} had ended before the work was finished")
    if task_token is not None:
        yield from me.send(TaskAnswer(task_token, *(("LockLost", str(lost)) if lost is not None else ())))
    if lost is not None:
        raise lost
    assert released is not None
    return released


def abandon(me: Contender, held: Hold, session: Session) -> Steps[None]:
    """The work may still be running: end the heartbeat, and leave the lock held until its lease ends."""
    yield from _give_up(me, held, session, "abandonedToken", only_if.NOTHING_LATER_ABANDONED)


def stop(me: Contender, held: Hold, session: Session) -> Steps[None]:
    """The execution has ended: a heartbeat that still runs, or runs again after a redrive, has lost the lock."""
    yield from _give_up(me, held, session, "stoppedToken", only_if.NOTHING_LATER_STOPPED)


def _give_up(me: Contender, held: Hold, session: Session, attribute: str, condition: str) -> Steps[None]:
    update = f"SET {attribute} = :token, expiresAt = :expires_at"
    reply = yield from me.send(_about_the_hold(me, held, session, update, condition))
    task_token = _task_token(reply.item, held.fencing_token)
    if task_token is not None:
        yield from me.send(TaskAnswer(task_token))


def note_claim(me: Contender, session: Session, work_machine: str) -> Steps[None]:
    """Record the owner and the lock before its first request: a clean-up has only the execution's ARN.

    Args:
        work_machine: the ARN of the state machine that is the work; empty for other work.
    """
    values = {**the_claim(me.claim), ":work_machine": {"S": work_machine}}
    yield from _note(me, session, f"{THE_CLAIM}, workMachine = :work_machine", only_if.NO_CLAIM_YET, values)


def note_continuation(me: Contender, session: Session, execution: str, count: int) -> Steps[None]:
    """Record a continuation, the wait's ``count``-th, before it is started: a clean-up stops it."""
    values = {":execution": {"S": execution}, ":continuations": number(count)}
    changes = "continuation = :execution, continuations = :continuations"
    yield from _note(me, session, changes, only_if.NO_LATER_CONTINUATION, values)


def _note(me: Contender, session: Session, changes: str, condition: str, values: dict[str, Any]) -> Steps[None]:
    # A wait may be unlimited, and an execution may last for a year.
    values[":expires_at"] = number(me.now.latest_ms // 1_000 + _LONGEST_WAIT_S)
    yield from me.send(on_the_session(session, f"SET {changes}, expiresAt = :expires_at", condition, values))


def is_unfinished(execution: str) -> Steps[bool]:
    """Whether an execution has a session without a recorded end; one that never waited nor held has no session."""
    reply = yield reads.read_sessions(execution)
    return any(item is not None and "finishedToken" not in item for item in reply.items)


def claims_of(execution: str) -> Steps[list[tuple[Session, Claim, str]]]:
    """The unfinished claims of an execution, each with its session and the state machine that is its work."""
    request = reads.read_sessions(execution)
    found: list[tuple[Session, Claim, str]] = []
    while True:
        reply = yield request
        for item in reply.items:
            if item is not None and "entity" in item and "finishedToken" not in item:
                lock = LockName(item["entity"]["S"], item["namespace"]["S"])
                claim = Claim(lock, item["owner"]["S"], integer(item["leaseMs"]))
                machine = item["workMachine"]["S"] if "workMachine" in item else ""
                found.append((Session.of_key(item), claim, machine))
        if reply.last_key is None:
            return found
        request = replace(request, after=reply.last_key)


def _is_fresh(me: Contender, held: Hold) -> bool:
    return me.now.local_of(held.lease_until_ms) - me.now.local_ms >= me.claim.lease_ms * 3 // 4


def _renewed(me: Contender, held: Hold) -> Steps[tuple[Hold, LockLost | None]]:
    try:
        renewed = yield from me.renew(held.fencing_token)
    except LockLost as lost:
        return held, lost
    return replace(held, lease_until_ms=renewed.lease_until_ms), None


def _release_in_place(me: Contender, held: Hold) -> Steps[LockLost | None]:
    """The release function failed; the state machine has recorded that the work has ended."""
    try:
        yield from me.release(held, releasing=Releasing(tried_before=True))
    except LockLost as lost:
        return lost
    return None


def _about_the_hold(
    me: Contender, held: Hold, session: Session, update: str, condition: str, more: Mapping[str, Any] | None = None
) -> Write:
    """A write of the session of a holder."""
    values: dict[str, Any] = {
        ":token": number(held.fencing_token),
        ":now": number(me.now.latest_ms),
        ":expires_at": number(session_expires_at_s(max(me.now.latest_ms, held.lease_until_ms))),
        **(more or {}),
    }
    return on_the_session(session, update, condition, values, returns="ALL_NEW")


def _is_over(item: Item | None, fencing_token: int) -> bool:
    over = ("finishedToken", "abandonedToken", "stoppedToken")
    return any((_number(item, name) or 0) >= fencing_token for name in over)


def _task_token(item: Item | None, fencing_token: int) -> str | None:
    if item is None or "taskToken" not in item or _number(item, "fencingToken") != fencing_token:
        return None
    return str(item["taskToken"]["S"])


def _number(item: Item | None, name: str) -> int | None:
    return integer_if_there(item, name) if item is not None else None
