"""The bodies of DynamoDB's HTTP interface: binary values are in base64, and an error's code is a member of the body."""

import base64
import json
from typing import Any

_ERRORS = "com.amazonaws.dynamodb.v20120810#"


def decoded(body: bytes | str) -> dict[str, Any]:
    """The parameters in a request's body.

    Raises:
        ValueError: it is not JSON, or a binary value is not in base64.
    """
    parameters: dict[str, Any] = json.loads(body, object_hook=_with_bytes)
    return parameters


def encoded(reply: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a reply, which loses its metadata and its error here."""
    headers: dict[str, str] = reply.pop("ResponseMetadata")["HTTPHeaders"]
    if "Error" in reply:
        reply |= failure(reply.pop("Error")["Code"])
    return headers, json.dumps(reply, default=_base64).encode()


def failure(code: str) -> dict[str, str]:
    """The member of an error's body that has its code."""
    return {"__type": _ERRORS + code}


def _with_bytes(value: dict[str, Any]) -> dict[str, Any]:
    """Decode binary values from base64. A member ``B`` that is not text is an attribute of that name, not a value."""
    if len(value) == 1 and isinstance(value.get("B"), str):
        return {"B": base64.b64decode(value["B"])}
    if len(value) == 1 and isinstance(value.get("BS"), list):
        return {"BS": [base64.b64decode(member) for member in value["BS"]]}
    return value


def _base64(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value)} is not a DynamoDB value")
