"""The input of the serialised workflow: checked and completed once, before anything is written."""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ticketlock._checks import whole_number
from ticketlock.errors import InvalidLockRequest, TaskNotAllowed, shown
from ticketlock.locks._modes import MAX_HOLDERS, mode_of
from ticketlock.locks._names import DEFAULT_NAMESPACE, LockName, record_wait_ms

# A payload may have 256 KiB. It also has to carry the turn, and the cause of failed work of up to 32 KiB, which quoting
# may double.
MAX_INPUT_BYTES = 150_000

_FIELDS = frozenset({"entity", "namespace", "permits", "recordWaitSeconds", "shared", "task"})
# A state that starts this execution adds it, and the console then links the two. The lock ignores it.
_STARTED_BY = "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID"
# A greater number may be rounded in transit, as JSON allows (https://www.rfc-editor.org/rfc/rfc8259#section-6).
_EXACT = 2**53 - 1
# Field of the request: the kind of work, and what its ARN must contain.
_TARGETS = {"functionArn": ("function", ":function:"), "stateMachineArn": ("execution", ":stateMachine:")}


@dataclass(frozen=True, slots=True)
class LockRequest:
    """The input of a serialised workflow.

    Attributes:
        lock: the lock's name.
        record_wait_ms: how long to wait at most; None for ever.
        permits: how many may hold the lock at once.
        names_permits: whether the input says so; otherwise it is the deployment's number.
        shared: whether it is held together with other holders that share it.
        task: ``{"kind": "function" or "execution", "arn": str, "input": object}``.
    """

    lock: LockName
    record_wait_ms: int | None
    permits: int
    names_permits: bool
    shared: bool
    task: Mapping[str, Any]

    @classmethod
    def parse(
        cls, request: Any, *, targets: Collection[str] | None, default_record_wait: Any, default_permits: int
    ) -> "LockRequest":
        """Read the input of an execution.

        Args:
            request: the input, any JSON value.
            targets: the ARNs of the functions and state machines that may be run; None for any.
            default_record_wait: for an input without ``recordWaitSeconds``.
            default_permits: for an input without ``permits`` that does not share the lock.

        Raises:
            InvalidLockRequest: a field is missing, unknown or out of its bounds; the message names it.
            TaskNotAllowed: the task's target is not in ``targets``.
        """
        with _of_json():
            fields = _object("the input", request, _FIELDS, ignored=_STARTED_BY)
            lock, wait_ms = _lock(fields, default_record_wait)
            permits, shared = _limit(fields, default_permits)
            task = _task(fields["task"] if "task" in fields else _missing("task"), targets)
        return cls(lock, wait_ms, permits, "permits" in fields, shared, task)

    @classmethod
    def parse_place(cls, request: Any, *, default_record_wait: Any, default_permits: int) -> "LockRequest":
        """Read the request of a fragment, whose work is not named but follows in the workflow.

        Raises:
            InvalidLockRequest: a field is missing, unknown or out of its bounds; the message names it.
        """
        with _of_json():
            fields = _object("the lock request", request, _FIELDS - {"task"})
            lock, wait_ms = _lock(fields, default_record_wait)
            permits, shared = _limit(fields, default_permits)
        return cls(lock, wait_ms, permits, "permits" in fields, shared, {})


@contextmanager
def _of_json() -> Iterator[None]:
    """Within the block an error shows a value as it is in JSON."""
    try:
        yield
    except InvalidLockRequest as error:
        raise error.in_json() from None


def _lock(fields: Mapping[str, Any], default_record_wait: Any) -> tuple[LockName, int | None]:
    entity = _entity(fields["entity"] if "entity" in fields else _missing("entity"))
    lock = LockName(entity, fields.get("namespace", DEFAULT_NAMESPACE))
    return lock, record_wait_ms(
        "recordWaitSeconds", fields.get("recordWaitSeconds", default_record_wait), infinity='"Infinity"'
    )


def _entity(value: Any) -> str:
    """Text as it is, and a whole number as digits: order 42 is the same as order "42"."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _EXACT:
        allowed = f"text, or a whole number from {-_EXACT:,} to {_EXACT:,} (a greater one as text)"
        raise InvalidLockRequest("entity", value, allowed)
    return str(value)


def _limit(fields: Mapping[str, Any], default_permits: int) -> tuple[int, bool]:
    shared = fields.get("shared", False)
    if not isinstance(shared, bool):
        raise InvalidLockRequest("shared", shared, "true or false")
    # A lock that is shared has one permit, even if the default for other requests is another number.
    mode = mode_of(shared=shared)
    asked = fields["permits"] if "permits" in fields else mode.permits_to_ask(default_permits)
    permits = whole_number("permits", asked, 1, MAX_HOLDERS)
    if permits != mode.permits_to_ask(permits):
        raise InvalidLockRequest("permits", permits, "1, because `shared` is true")
    return permits, shared


def _task(task: Any, targets: Collection[str] | None) -> Mapping[str, Any]:
    fields = _object("task", task, {*_TARGETS, "input"})
    named = [name for name in _TARGETS if name in fields]
    if len(named) != 1:
        raise InvalidLockRequest("task", task, "exactly one of functionArn and stateMachineArn")
    target = fields[named[0]]
    part = _TARGETS[named[0]][1]
    if not isinstance(target, str) or part not in target or (targets is not None and target not in targets):
        allowed = tuple(sorted(arn for arn in targets or () if part in arn))
        raise TaskNotAllowed(f"task.{named[0]}", target, allowed)
    work_input = fields.get("input", {})
    if not isinstance(work_input, dict):
        raise InvalidLockRequest("task.input", work_input, "an object, to which `lock` is added")
    if "lock" in work_input:
        # Without its value: a `lock` from another payload names its owner.
        raise InvalidLockRequest("task.input.lock", "set", "to leave it out, because ticketlock adds it")
    try:
        size = len(json.dumps(work_input, ensure_ascii=False).encode(errors="surrogatepass"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidLockRequest(
            "task.input", f"{type(error).__name__}: {error}", "a value that JSON can represent"
        ) from None
    if size > MAX_INPUT_BYTES:
        raise InvalidLockRequest("task.input", f"{size:,} bytes", f"at most {MAX_INPUT_BYTES:,} bytes of JSON")
    return {"kind": _TARGETS[named[0]][0], "arn": target, "input": work_input}


def _object(field: str, value: Any, known: Collection[str], *, ignored: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidLockRequest(field, value, "an object")
    for name in value:
        if name not in known and name != ignored:
            path = shown(f"{field}.{name}" if field == "task" else name).strip('"')
            raise InvalidLockRequest(path, value[name], f"only the fields {', '.join(sorted(known))}")
    return value


def _missing(field: str) -> Any:
    raise InvalidLockRequest(field, None, "a value: the field is required")
