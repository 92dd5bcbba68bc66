"""Translates errors of the wire into errors of units."""

from collections.abc import Iterator
from contextlib import contextmanager

from ticketlock.errors import InvalidLockRequest, InvalidUnitRequest


@contextmanager
def as_a_unit_request(**given: object) -> Iterator[None]:
    """Within the block a setting may be refused.

    Args:
        given: the settings, by name.

    Raises:
        InvalidUnitRequest: in place of ``InvalidLockRequest``.
    """
    try:
        yield
    except InvalidLockRequest as error:
        raise InvalidUnitRequest(error.field, given.get(error.field), error.allowed) from error
