"""Credentials for signing a call: distinguishes a provider's failure to refresh them from all other errors."""

from typing import Any

from botocore.credentials import Credentials


class NotSigned(Exception):
    """The credentials for a request could not be obtained, so the request was not sent.

    Attributes:
        cause: the error that their provider raised.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(f"the AWS credentials could not be refreshed: {type(cause).__name__}: {cause}")
        self.cause = cause


def refreshable(client: Any) -> Any | None:
    """The credentials of an SDK's client, if they may have to be refreshed; None if they are fixed, or missing.

    They are obtained before each call, separately: the SDK passes on any error of a provider, even a bare RuntimeError,
    and in the middle of a call it could not be distinguished from an interrupt or a bug.
    """
    credentials = getattr(getattr(client, "_request_signer", None), "_credentials", None)
    return None if type(credentials) in _FIXED else credentials


_FIXED = (type(None), Credentials)
