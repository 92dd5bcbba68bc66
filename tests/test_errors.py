"""The errors: one tree, drawn in its docstring, whose messages say what is wrong and what would be right."""

import copy
import inspect
import multiprocessing
import pickle
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from decimal import Decimal

import pytest

from ticketlock import (
    InvalidLockRequest,
    PermitsMismatch,
    RecordWaitExceeded,
    TaskNotAllowed,
    TicketLockError,
    UnsupportedFormat,
    errors,
)

ARN = "arn:aws:lambda:us-east-1:123456789012:function:settle"


def drawn_tree() -> dict[str, tuple[str, ...]]:
    """Each class in the docstring's drawing, and its bases."""
    assert errors.__doc__ is not None
    above: list[str] = []
    bases: dict[str, tuple[str, ...]] = {}
    for branch, name, also in re.findall(
        r"^    ((?:[│ ]   )*(?:[├└]── )?)([A-Z]\w+)(?: \((\w+)\))?(?:  |$)", errors.__doc__, re.MULTILINE
    ):
        depth = len(branch) // 4
        del above[depth:]
        bases[name] = (*above[-1:], *filter(None, [also])) or ("Exception",)
        above.append(name)
    return bases


def defined_tree() -> dict[str, tuple[str, ...]]:
    return {
        name: tuple(base.__name__ for base in error.__bases__)
        for name, error in inspect.getmembers(errors, inspect.isclass)
    }


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    assert drawn_tree() == defined_tree()


def test_every_error_is_public() -> None:
    assert sorted(errors.__all__) == errors.__all__ == sorted(defined_tree())


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_a_ticket_lock_error(name: str) -> None:
    assert issubclass(getattr(errors, name), TicketLockError)


def test_a_record_wait_that_ended_is_a_timeout() -> None:
    assert issubclass(RecordWaitExceeded, TimeoutError)


def test_a_malformed_request_is_a_value_error() -> None:
    assert issubclass(InvalidLockRequest, ValueError)


def test_a_malformed_request_names_the_field_its_value_and_what_is_allowed() -> None:
    error = InvalidLockRequest("task.input", [1, 2], "an object")
    assert str(error) == "task.input is [1, 2]; allowed: an object"
    assert (error.field, error.value, error.allowed) == ("task.input", "[1, 2]", "an object")


def test_a_value_is_shown_whole_up_to_300_characters_and_a_longer_one_is_shortened_to_them() -> None:
    whole = "x" * (300 - len('""'))
    assert InvalidLockRequest("entity", whole, "text").value == f'"{whole}"'
    for longer in (whole + "x", whole * 2):
        assert InvalidLockRequest("entity", longer, "text").value == f'"{whole[:-2]}...'


@pytest.mark.parametrize(
    ("value", "text", "in_json"),
    [
        (True, "True", "true"),
        (None, "None", "null"),
        ("é", '"é"', '"é"'),
        ({"a": [1]}, "{'a': [1]}", '{"a": [1]}'),
        (b"x", "b'x'", "b'x'"),
        (float("-inf"), "-math.inf", "-Infinity"),
        (float("nan"), "math.nan", "NaN"),
    ],
    ids=["bool", "None", "text", "object", "bytes", "infinity", "not a number"],
)
def test_a_value_is_shown_as_python_writes_it_and_in_json_as_json_does(value: object, text: str, in_json: str) -> None:
    error = InvalidLockRequest("entity", value, "text")
    assert (error.value, str(error)) == (text, f"entity is {text}; allowed: text")
    error = error.in_json()
    assert (error.value, str(error)) == (in_json, f"entity is {in_json}; allowed: text")


def test_half_a_surrogate_pair_is_shown_as_it_is_written() -> None:
    """JSON has it, UTF-8 does not: a text with it could not be sent as a reply."""
    assert InvalidLockRequest("entity", "order \ud800", "text").value == r'"order \ud800"'


def test_a_task_that_is_not_allowed_names_the_targets_that_are() -> None:
    error = TaskNotAllowed("task.functionArn", "arn:other" + "x" * 400, (ARN, ARN + "2"))
    assert error.field == "task.functionArn"
    assert len(error.value) == 300
    assert error.allowed == (ARN, ARN + "2")
    assert str(error) == f"task.functionArn is {error.value}; allowed targets: {ARN}, {ARN}2"


def test_a_task_where_none_is_allowed_is_told_where_to_allow_it() -> None:
    assert "none (the construct's `targets` is empty)" in str(TaskNotAllowed("task.functionArn", ARN, ()))


def test_another_number_of_permits_names_both_and_the_lock() -> None:
    error = PermitsMismatch(asked=2, stored=3, entity="order-1")
    assert (error.asked, error.stored, error.entity) == (2, 3, "order-1")
    assert "the lock on 'order-1' has 3 permits, not 2" in str(error)
    assert "has 1 permit, not 2" in str(PermitsMismatch(asked=2, stored=1, entity="order-1"))


def test_a_newer_format_names_both_and_says_what_to_do() -> None:
    error = UnsupportedFormat(stored=2, known=1)
    assert error.stored == 2
    assert str(error) == "the lock is in data format 2, but this version only knows 1: upgrade ticketlock"


KEYS = {"id": "a", "n": Decimal(1), "raw": b"x"}
MADE: dict[type[TicketLockError], Callable[[], TicketLockError]] = {
    errors.InvalidLockRequest: lambda: errors.InvalidLockRequest("entity", object(), "text"),
    errors.InvalidUnitRequest: lambda: errors.InvalidUnitRequest("key.id", object(), "text"),
    errors.TaskNotAllowed: lambda: errors.TaskNotAllowed("task.functionArn", object(), (ARN,)),
    errors.PermitsMismatch: lambda: errors.PermitsMismatch(2, 3, "order-1"),
    errors.UnsupportedFormat: lambda: errors.UnsupportedFormat(2, 1),
    errors.RecordWaitExceeded: lambda: errors.RecordWaitExceeded("why", [("an owner", 1, 2)], is_closed=True),
    errors.ConditionFailed: lambda: errors.ConditionFailed("accounts", KEYS, "balance > :n"),
    errors.UnitConflict: lambda: errors.UnitConflict([("accounts", KEYS)], inserted_into=["lines"]),
    errors.UnitRolledBack: lambda: errors.UnitRolledBack("why", by="another"),
    errors.ItemTooLarge: lambda: errors.ItemTooLarge("why", phase="mark"),
    errors.CommittedUnfinished: lambda: errors.CommittedUnfinished("a unit", [("accounts", KEYS)], "why"),
}
"""How an error is made that takes more than a sentence."""


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_the_same_in_another_process(name: str) -> None:
    kind = getattr(errors, name)
    error = MADE[kind]() if kind in MADE else kind("why")
    error.add_note("in the second state")
    for there in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(there) is kind
        assert str(there) == str(error)
        assert (there.args, vars(there)) == (error.args, vars(error))


def test_an_error_of_a_pool_of_processes_reaches_the_caller_and_leaves_the_pool_usable() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with pytest.raises(errors.UnitConflict) as raised:
            pool.submit(_conflicts).result()
        assert raised.value.keys == (("accounts", KEYS),)
        assert pool.submit(len, "ab").result() == 2


def _conflicts() -> None:
    raise errors.UnitConflict([("accounts", KEYS)])
