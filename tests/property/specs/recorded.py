"""What is written to the tables of a simulated world, and what each write finds and leaves there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from ticketlock._expressions._values import Attributes
from ticketlock.testing import InSteps, MemoryDynamoDB
from ticketlock.testing._tables import ItemId

_JUDGED = frozenset({"None", "ConditionalCheckFailed"})
_KINDS = {"put_item": "Put", "update_item": "Update", "delete_item": "Delete"}


@dataclass(slots=True)
class Action:
    """One write, or one check, of a request.

    Attributes:
        kind: ``"Put"``, ``"Update"``, ``"Delete"`` or ``"ConditionCheck"``.
        asked: its parameters.
        before, after: the item; None for no item.
        is_refused: whether its condition did not hold.
    """

    kind: str
    asked: Mapping[str, Any]
    item: ItemId
    before: Attributes | None = None
    after: Attributes | None = None
    is_refused: bool = False

    @property
    def update(self) -> tuple[list[str], list[str]]:
        """What an update sets, and what it removes."""
        sets, _, removed = f" {self.asked.get('UpdateExpression', '')}".partition(" REMOVE ")
        return _clauses(sets.removeprefix(" SET ")) if sets else [], removed.split(", ") if removed else []

    @property
    def values(self) -> Mapping[str, Any]:
        """The values of its placeholders."""
        values: Mapping[str, Any] = self.asked.get("ExpressionAttributeValues", {})
        return values

    @property
    def names(self) -> Mapping[str, str]:
        names: Mapping[str, str] = self.asked.get("ExpressionAttributeNames", {})
        return names

    @property
    def condition(self) -> str:
        return str(self.asked.get("ConditionExpression", ""))


def _clauses(text: str) -> list[str]:
    """Split at the commas that are in no parentheses."""
    found, depth = [""], 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            found.append("")
        else:
            found[-1] += sign
    return [each.strip() for each in found]


@dataclass(slots=True)
class Request:
    """A request that the service has judged by its conditions: applied, or refused.

    Attributes:
        token: that of a transaction.
    """

    actions: list[Action]
    token: str | None = None
    is_applied: bool = False


@dataclass
class Recorder:
    """A database in memory that records what is written to it.

    Attributes:
        history: the requests, in the order in which they were decided.
    """

    memory: MemoryDynamoDB
    history: list[Request] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.memory, name)

    def put_item(self, **asked: Any) -> Any:
        return self._writes("put_item", asked)

    def update_item(self, **asked: Any) -> Any:
        return self._writes("update_item", asked)

    def delete_item(self, **asked: Any) -> Any:
        return self._writes("delete_item", asked)

    def transact_write_items(self, **asked: Any) -> Any:
        return self.in_steps("transact_write_items", **asked).finish()

    def in_steps(self, operation: str, **asked: Any) -> "InSteps | RecordedSteps":
        """Begin a transaction that the service performs step by step."""
        steps = self.memory.in_steps(operation, **asked)
        return steps if operation != "transact_write_items" else RecordedSteps(steps, self, asked)

    def _writes(self, operation: str, asked: Any) -> Any:
        action = Action(_KINDS[operation], asked, self.id_of(asked))
        action.before = action.after = self.get(action.item)
        request = Request([action])
        try:
            answer = getattr(self.memory, operation)(**asked)
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                action.is_refused, action.after = True, self.get(action.item)
                self.history.append(request)
            raise
        request.is_applied, action.after = True, self.get(action.item)
        self.history.append(request)
        return answer

    def id_of(self, asked: Mapping[str, Any]) -> ItemId:
        table = self.memory._service.tables[asked["TableName"]]
        given = asked.get("Key") or asked["Item"]
        return asked["TableName"], table.key_of(given, is_item=True)

    def get(self, item: ItemId) -> Attributes | None:
        return self.memory._service.tables[item[0]].get(item[1])


class RecordedSteps:
    """A transaction that the service performs step by step, and what each item was and became.

    Other requests may be performed between two steps, but they cannot change an item that this one has reserved.
    """

    def __init__(self, steps: InSteps, recorder: Recorder, asked: Mapping[str, Any]) -> None:
        self._steps, self._recorder = steps, recorder
        actions = [(kind, each) for action in asked["TransactItems"] for kind, each in action.items()]
        recorded = [Action(kind, each, recorder.id_of(each)) for kind, each in actions]
        self._request = Request(recorded, asked.get("ClientRequestToken"))
        self._taken = 0
        self._unapplied = {action.item: action for action in self._request.actions}

    @property
    def operation(self) -> str:
        return self._steps.operation

    @property
    def is_over(self) -> bool:
        return self._steps.is_over

    def step(self) -> bool:
        """Perform one step; False if it is over."""
        actions = self._request.actions
        if self._taken < len(actions):
            action = actions[self._taken]
            action.before = action.after = self._recorder.get(action.item)
        goes_on = self._steps.step()
        self._taken += 1
        if self._taken == len(actions) + 1 and goes_on:
            self._request.is_applied = True
            self._recorder.history.append(self._request)
        if self._request.is_applied:
            self._note_applied()
        return goes_on

    def finish(self) -> Any:
        """Perform all steps that are left, and return its reply as the client's method does."""
        while not self.is_over:
            self.step()
        try:
            return self._steps.finish()
        except ClientError as error:
            self._note_refusal(error)
            raise

    def _note_applied(self) -> None:
        at_work = self._recorder.memory._service.tables.transactions.is_at_work
        for item in [item for item in self._unapplied if self.is_over or not at_work(item)]:
            self._unapplied.pop(item).after = self._recorder.get(item)

    def _note_refusal(self, error: ClientError) -> None:
        response: Any = error.response
        reasons = [reason["Code"] for reason in response.get("CancellationReasons", ())]
        if reasons and _JUDGED.issuperset(reasons):
            for action, reason in zip(self._request.actions, reasons, strict=True):
                # Others may have written the item since its condition was checked.
                action.is_refused = reason != "None"
            self._recorder.history.append(self._request)
