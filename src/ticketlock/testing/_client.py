"""What a client of the SDK has beside its requests: methods, paginators, waiters, errors, and its description."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import botocore.session
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import OperationNotPageableError, WaiterError

from ticketlock.testing._parameters import REQUIRED, not_known, service_model
from ticketlock.testing._refusals import exceptions
from ticketlock.testing._service import ENDPOINT

_WAITERS = ("table_exists", "table_not_exists")


def _method(operation: str, doc: str | None = None) -> Callable[..., Any]:
    """A method of the client."""

    def send(self: "ClientMethods", **parameters: Any) -> Any:
        return self._make_api_call(operation, parameters)

    send.__doc__ = doc or f"{operation}."
    return send


@cache
def _operations() -> Mapping[str, str]:
    """DynamoDB's operations by the names of the client's methods."""
    return {xform_name(name): name for name in service_model().operation_names}


@cache
def _paginators() -> Any:
    return botocore.session.get_session().get_paginator_model("dynamodb")


@cache
def _waiter_names() -> list[str]:
    """All waiters of the SDK's client."""
    model = botocore.session.get_session().get_waiter_model("dynamodb")
    return [xform_name(name) for name in model.waiter_names]


class _Awaited:
    """A waiter for a table. In memory a table is there, or gone, at once: it looks once, and sleeps never."""

    def __init__(self, name: str, describe: Callable[..., Any]) -> None:
        self.name = name
        self._describe = describe

    def _judge(self, reply: Any) -> None:
        """Raise an error if the reply, or the error, to a DescribeTable is not the one that is waited for."""
        if ("Error" in reply) == (self.name == "table_exists"):
            reason = "Max attempts exceeded: in memory, tables are created and deleted at once"
            raise WaiterError(self.name, reason, reply)


class TableWaiter(_Awaited):
    """The same for threads."""

    def wait(self, *, TableName: str, WaiterConfig: Any = None) -> None:  # noqa: ARG002 as of a client
        """Raise ``WaiterError`` at once if the table is not there, or is."""
        try:
            reply = self._describe(TableName=TableName)
        except exceptions().ResourceNotFoundException as error:
            reply = error.response
        self._judge(reply)


class AsyncTableWaiter(_Awaited):
    """The same for tasks."""

    async def wait(self, *, TableName: str, WaiterConfig: Any = None) -> None:  # noqa: ARG002 as of a client
        """Raise ``WaiterError`` at once if the table is not there, or is."""
        try:
            reply = await self._describe(TableName=TableName)
        except exceptions().ResourceNotFoundException as error:
            reply = error.response
        self._judge(reply)


class ClientMeta:
    """The ``meta`` of a client."""

    partition = "aws"
    region_name = "us-east-1"
    endpoint_url = ENDPOINT

    def __init__(self, config: Config) -> None:
        self.config = config

    @property
    def service_model(self) -> Any:
        """DynamoDB's API, as the SDK describes it."""
        return service_model()

    @property
    def method_to_api_mapping(self) -> Mapping[str, str]:
        """The operations by the names of the methods."""
        return _operations()

    @property
    def events(self) -> Any:
        """No request of this client has events."""
        raise not_known("meta.events. Register handlers on a client of boto3, and let memory.serve(client) answer it")


class ClientMethods:
    """The methods of a client, which call its ``_make_api_call``, as those of the SDKs' clients do."""

    batch_get_item = _method("BatchGetItem")
    batch_write_item = _method("BatchWriteItem")
    create_table = _method("CreateTable")
    delete_item = _method("DeleteItem")
    delete_table = _method("DeleteTable")
    describe_continuous_backups = _method("DescribeContinuousBackups")
    describe_table = _method("DescribeTable")
    describe_time_to_live = _method("DescribeTimeToLive")
    get_item = _method("GetItem")
    list_tables = _method("ListTables")
    list_tags_of_resource = _method("ListTagsOfResource")
    put_item = _method("PutItem")
    query = _method("Query")
    scan = _method("Scan")
    tag_resource = _method("TagResource")
    transact_get_items = _method("TransactGetItems")
    transact_write_items = _method("TransactWriteItems")
    untag_resource = _method("UntagResource")
    update_continuous_backups = _method("UpdateContinuousBackups")
    update_item = _method("UpdateItem")
    update_table = _method("UpdateTable")
    update_time_to_live = _method("UpdateTimeToLive")

    @property
    def exceptions(self) -> Any:
        """The classes of its errors, as of a client."""
        return exceptions()

    @property
    def waiter_names(self) -> list[str]:
        """The names that ``get_waiter`` takes."""
        return [*_WAITERS]

    def can_paginate(self, operation_name: str) -> bool:
        """Whether the SDK's client has a paginator for a method."""
        return _operations().get(operation_name) in _paginators()._paginator_config

    def generate_presigned_url(self, *_: Any, **__: Any) -> Any:
        """Requests have no URL."""
        raise not_known("generate_presigned_url")

    def _paged(self, operation_name: str) -> tuple[Any, Any, Any]:
        """What a paginator needs."""
        if not self.can_paginate(operation_name):
            raise OperationNotPageableError(operation_name=operation_name)
        operation = _operations()[operation_name]
        if operation not in REQUIRED:
            raise not_known(operation)
        config = _paginators().get_paginator(operation)
        return getattr(self, operation_name), config, service_model().operation_model(operation)

    def _waited(self, waiter_name: str) -> tuple[str, Any]:
        """What a waiter needs."""
        if waiter_name not in _waiter_names():
            raise ValueError(f"Waiter does not exist: {waiter_name}")
        if waiter_name not in _WAITERS:
            raise not_known(f"the waiter {waiter_name}")
        return waiter_name, self.describe_table

    def _make_api_call(self, operation: str, parameters: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]:
            """The methods of a client that it does not have say so when they are called."""
            if name.startswith("_") or name not in _operations():
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

            def refuse(*_: Any, **__: Any) -> Any:
                raise not_known(_operations()[name])

            return refuse
