"""What a unit is called: 26 characters, the time and 80 random bits, never used again."""

import secrets
import string

_DIGITS = "".join(each for each in string.digits + string.ascii_uppercase if each not in "ILOU")
_LENGTH = 26
_RANDOM_BITS = 80


def new_id(wall_ms: int) -> str:
    """An id that nobody has had, of this moment; the form is that of https://github.com/ulid/spec."""
    number = (wall_ms << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
    return "".join(_DIGITS[(number >> (5 * place)) & 31] for place in reversed(range(_LENGTH)))


def is_id(text: str) -> bool:
    """Whether a text may be one."""
    return len(text) == _LENGTH and set(text) <= set(_DIGITS)


def begun_ms(unit: str) -> int:
    """The moment that an id has in it, by the wall clock of whoever made it."""
    number = 0
    for digit in unit:
        number = (number << 5) | _DIGITS.index(digit)
    return number >> _RANDOM_BITS
