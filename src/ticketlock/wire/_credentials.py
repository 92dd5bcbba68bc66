"""The credentials that a call is signed with: a provider's failure to refresh them is told from all other errors."""

from typing import Any

from botocore.credentials import Credentials


class NotSigned(Exception):
    """The credentials for a request could not be got, so it was not sent.

    Attributes:
        cause: what their provider has raised.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(f"the AWS credentials could not be refreshed: {type(cause).__name__}: {cause}")
        self.cause = cause


def refreshable(client: Any) -> Any | None:
    """The credentials of an SDK's client that may have to be refreshed; None of one whose are fixed, or that has none.

    They are got ahead of each call, apart from it: the SDK hands on whatever a provider raises, a bare RuntimeError
    too, and in the middle of a call nobody could tell that from an interrupt or from a bug.
    """
    credentials = getattr(getattr(client, "_request_signer", None), "_credentials", None)
    return None if type(credentials) in _FIXED else credentials


_FIXED = (type(None), Credentials)
