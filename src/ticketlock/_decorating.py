"""Shared by decorators of functions: the entity or name of a call, and whether its work has ended when it returns.

No I/O.
"""

import functools
import inspect
import re
import string
import sys
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Generator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from ticketlock._names import NAMES, AnyName, allowed_instead, like_a_template, plain
from ticketlock.errors import TicketLockError

K = TypeVar("K")
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
V_co = TypeVar("V_co", covariant=True)

CallKey = str | Callable[..., AnyName]

_DEEPEST = 50
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Decorator(Generic[K]):
    """A decorator: how messages name it, and what they suggest instead; and what its keys are.

    Attributes:
        name: the decorating method.
        key: its argument that takes the key.
        key_of: the key that a value stands for which a callable has returned; None if it stands for none.
        refused: the error for an invalid key.
        for_threads, for_tasks: the classes that have the method.
        by_hand: what does the same without a decorator.
        run: how work that begins after the call would run.
    """

    name: str
    key: str
    key_of: Callable[[Any], K | None]
    refused: Callable[[str, object, str], TicketLockError]
    for_threads: str
    for_tasks: str
    by_hand: str
    run: str

    def check_key(self, key: Any) -> None:
        """Refuse an invalid key. The decorating method itself must call it, since it inspects the stack."""
        if not isinstance(key, str) and not callable(key):
            allowed = "a template of text, or a callable that gets the call's arguments"
            raise self.refused(self.key, key, allowed)
        if callable(key) and _is_decorated(key, _caller_of_decorator()):
            allowed = f'a key: write @{self.name}("order-{{order_id}}"), with the name of a parameter'
            raise self.refused(self.key, _name_of(key), allowed)
        if any(inspect.iscoroutinefunction(each) for each in _called(key)):
            raise self.refused(self.key, _name_of(key), f"a plain function that returns {NAMES}, not a coroutine")

    def check_begins_at_once(self, function: Callable[..., Any]) -> None:
        """Refuse a function whose work begins only after its call."""
        self._check_is_no_generator(function)
        if any(inspect.iscoroutinefunction(each) for each in _called(function)):
            raise TypeError(f"{_name_of(function)} is a coroutine function: use {self.for_tasks}")

    def check_is_awaited(self, function: Callable[..., Any]) -> None:
        """Refuse a function that is not a coroutine function."""
        self._check_is_no_generator(function)
        if not any(inspect.iscoroutinefunction(each) for each in _called(function, wrapped=True)):
            raise TypeError(f"{_name_of(function)} is not a coroutine function: use {self.for_threads}")

    def _check_is_no_generator(self, function: Callable[..., Any]) -> None:
        if isinstance(function, property):
            raise TypeError(f"a property is no function: write @{self.name}(...) below @property")
        if any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in _called(function)):
            raise TypeError(
                f"{_name_of(function)} is a generator function, whose body runs after the call has returned: "
                f"use {self.by_hand}"
            )

    def check_is_over(self, function: Callable[..., Any], result: Any) -> None:
        """Refuse the result of a function if it is work that would run after the lock is free, or the unit committed.

        None of it has run, and a coroutine or a generator is closed.
        """
        if inspect.isawaitable(result):
            what, instead = "an awaitable", f"await it inside, or use {self.for_tasks} for a coroutine function"
        elif isinstance(result, Iterator | AsyncIterator) or _is_made_of_a_generator(result):
            what = "an iterator"
            instead = f"return what it yields, for example as a list, or use {self.by_hand} around the loop"
        else:
            return
        _discard(result)
        returned = f"{_name_of(function)} returned {what} ({type(result).__name__})"
        raise TypeError(f"{returned}, whose work would run {self.run}: {instead}")


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """A function's signature. An annotation may name what is not defined yet, or what type checkers alone import."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        # https://docs.python.org/3.14/library/inspect.html#inspect.signature
        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def runs_when_called(function: Callable[..., Any]) -> bool:
    """Whether a call runs a function's body, as it does not for coroutine functions and generator functions."""
    begins_later = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
    return not any(is_one(each) for each in _called(function) for is_one in begins_later)


def _caller_of_decorator() -> FrameType | None:
    """The line where the decorator was called; None if Python does not say."""
    frame = inspect.currentframe()
    for _ in ("check_key", "check_arguments", "the decorator", "its caller"):
        frame = frame.f_back if frame is not None else None
    return frame


def _is_decorated(key: Callable[..., Any], caller: FrameType | None) -> bool:
    """Whether a key is the function itself, because the decorator was written without brackets.

    Python calls a decorator from the function's own first lines, before the function's name is bound. A function that
    is meant as a key is bound by then, or is a lambda.
    """
    code = getattr(inspect.unwrap(key), "__code__", None)
    if caller is None or code is None or code is caller.f_code or code.co_name == "<lambda>":
        return False
    if key is caller.f_locals.get(code.co_name) or key is caller.f_globals.get(code.co_name):
        return False
    last_line = max(line for *_, line in code.co_lines() if line is not None)
    return bool(code.co_filename == caller.f_code.co_filename and code.co_firstlineno <= caller.f_lineno <= last_line)


def _called(function: Any, *, wrapped: bool = False) -> Iterator[Any]:
    """A function, and the function that its call calls: of a partial its function, of an object its ``__call__``.

    Args:
        wrapped: whether to include the function that it says it wraps, which it may call differently.
    """
    for _ in range(_DEEPEST):
        yield function
        if isinstance(function, functools.partial):
            function = function.func
        elif wrapped and hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif not inspect.isroutine(function) and not inspect.isclass(function) and callable(function):
            function = type(function).__call__
        else:
            return


def _is_made_of_a_generator(result: Any) -> bool:
    """Whether it is the result of a function under ``contextlib.contextmanager``."""
    is_manager = isinstance(result, AbstractContextManager | AbstractAsyncContextManager)
    generator = getattr(result, "gen", None) if is_manager else None
    return inspect.isgenerator(generator) or inspect.isasyncgen(generator)


def _discard(result: Any) -> None:
    """Make sure that none of it runs, and that Python does not warn about a coroutine that was never awaited."""
    if isinstance(result, Coroutine | Generator):
        result.close()
    elif inspect.isawaitable(result) and hasattr(result, "cancel"):
        result.cancel()


class Passing(Protocol[V_co]):
    """A decorator whose function gets a value of this type first, or after ``self``; its callers leave that out."""

    @overload
    def __call__(self, function: Callable[Concatenate[V_co, P], R], /) -> Callable[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[S, V_co, P], R], /) -> Callable[Concatenate[S, P], R]: ...


class Passed:
    """The parameter in which a function gets what its decorator makes: its first one, or the one after ``self``.

    Raises:
        TypeError: the function has none of that name in such a place.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        of_all = signature_of(function)
        positional = [each.name for each in of_all.parameters.values() if each.kind in _POSITIONAL]
        if name not in positional[:2]:
            begins = f"def {getattr(function, '__name__', 'function')}({name}, ...)"
            raise TypeError(f"{_name_of(function)} gets {name!r} as its first argument, or after self: write {begins}")
        self._name, self._at = name, positional.index(name)
        self._of_callers = of_all.replace(parameters=[each for each in of_all.parameters.values() if each.name != name])

    def hidden_in(self, decorated: Any) -> Callable[..., Any]:
        """The decorated function, of which frameworks and other decorators see the signature that callers see."""
        decorated.__signature__ = self._of_callers
        return cast(Callable[..., Any], decorated)

    def given_in(self, args: tuple[Any, ...]) -> Any:
        """What a caller has passed in its place; None for nothing."""
        return args[self._at] if len(args) > self._at else None

    def call(self, function: Callable[..., Any], value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call the function with it, and with what its caller has passed."""
        if self._name in kwargs:
            raise TypeError(f"{self._name!r} cannot be passed by its name: the decorator passes it")
        if len(args) < self._at:
            return function(*args, **{**kwargs, self._name: value})
        return function(*args[: self._at], value, *args[self._at :], **kwargs)


class KeyOf(Generic[K]):
    """Computes the key of a function's call: the name of its entity, for example.

    Args:
        key: a callable that gets the call's arguments, or a template with the names of the function's parameters.
        given: the argument that the decorator passes itself.
    """

    def __init__(
        self, decorator: Decorator[K], key: str | Callable[..., Any], function: Callable[..., Any], given: str | None
    ) -> None:
        self._decorator = decorator
        self._key = key
        of_all = signature_of(function)
        self._signature = of_all.replace(parameters=[each for each in of_all.parameters.values() if each.name != given])
        if isinstance(key, str):
            self._check_template(key, list(self._signature.parameters), _name_of(function))

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> K | str:
        """The key of a call."""
        if isinstance(self._key, str):
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return _Template(self._decorator).vformat(self._key, (), bound.arguments)
        key = self._key(*args, **kwargs)
        found = self._decorator.key_of(key)
        if found is None:
            _discard(key)
            allowed = allowed_instead(key, f", of {_name_of(self._key)}")
            raise self._decorator.refused(self._decorator.key, key, allowed)
        return found

    def _check_template(self, template: str, parameters: list[str], function: str) -> None:
        try:
            names = list(_names_in(template))
        except ValueError as error:
            raise self._decorator.refused(self._decorator.key, template, f"a template ({error})") from None
        of = f"parameters of {function}: {', '.join(parameters) or 'it has none'}"
        for name in names:
            if name not in parameters:
                raise self._decorator.refused(self._decorator.key, template, f"{of}; {{{name}}} is none")
        for constant in _constants_in(template):
            placeholder = like_a_template(constant) or (None if names else _like_a_path(constant, parameters))
            if placeholder is not None:
                allowed = (
                    f'{of}, each in single braces as in "order-{{order_id}}"; {placeholder} is the same text in '
                    "each call; where that is meant, a function that returns it"
                )
                raise self._decorator.refused(self._decorator.key, template, allowed)


def _names_in(template: str) -> Iterator[str]:
    for _, field, specification, _ in string.Formatter().parse(template):
        if field is not None:
            yield re.split(r"[.\[]", field, maxsplit=1)[0]
            yield from _names_in(specification or "")


def _constants_in(template: str) -> Iterator[str]:
    """The texts of a template between its fields, as a call would get them."""
    text = ""
    for literal, field, *_ in string.Formatter().parse(template):
        text += literal
        if field is not None:
            yield text
            text = ""
    yield text


def _like_a_path(constant: str, parameters: Collection[str]) -> str | None:
    """The constant if it names a parameter, or what is in it, as an expression would."""
    root = re.split(r"[.\[]", constant.removeprefix("."), maxsplit=1)[0]
    return constant if root in parameters else None


class _Template(string.Formatter):
    """Fills in names only: the text form of any other object may differ from call to call."""

    def __init__(self, decorator: Decorator[Any]) -> None:
        super().__init__()
        self._decorator = decorator

    def _refused(self, of: str, value: object, allowed: str) -> TicketLockError:
        return self._decorator.refused(f"{self._decorator.key} {{{of}}}", value, allowed)

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        try:
            value, used = super().get_field(field_name, args, kwargs)
        except (LookupError, AttributeError, TypeError, ValueError) as error:
            raise self._refused(field_name, f"{type(error).__name__}: {error}", NAMES) from error
        found = plain(value)
        if found is None:
            other = f"name one in it, such as {{{field_name}.id}}, or give a function as key"
            raise self._refused(field_name, value, allowed_instead(value, otherwise=other))
        return found, used

    def format_field(self, value: Any, format_spec: str) -> Any:
        try:
            return super().format_field(value, format_spec)
        except ValueError as error:
            raise self._refused(f":{format_spec}", value, f"a valid format for it ({error})") from None


def _name_of(function: Any) -> str:
    """The name of a function in messages; a partial, or an object with ``__call__``, has no name of its own."""
    name: str = getattr(function, "__qualname__", None) or f"{type(function).__qualname__} object"
    return name
