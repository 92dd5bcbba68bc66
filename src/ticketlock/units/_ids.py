"""Ids of units: 26 characters, from the time and 80 random bits; no id is used twice."""

import secrets
import string

_DIGITS = "".join(each for each in string.digits + string.ascii_uppercase if each not in "ILOU")
LENGTH = 26
_RANDOM_BITS = 80


def new_id(wall_ms: int) -> str:
    """A new id of this moment, in the form of https://github.com/ulid/spec."""
    number = (wall_ms << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
    return "".join(_DIGITS[(number >> (5 * place)) & 31] for place in reversed(range(LENGTH)))


def is_id(text: str) -> bool:
    """Whether a text has the form of an id."""
    return len(text) == LENGTH and set(text) <= set(_DIGITS)


def begun_ms(unit: str) -> int:
    """The time in an id, by the wall clock of the process that made it."""
    number = 0
    for digit in unit:
        number = (number << 5) | _DIGITS.index(digit)
    return number >> _RANDOM_BITS
