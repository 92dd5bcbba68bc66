"""The roles of a deployed TicketLock: what they allow, and what happens without one of their permissions."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from e2e.cloud import Cloud


@dataclass(frozen=True, slots=True)
class Permission:
    """One action on one resource."""

    action: str
    resource: str


@dataclass(frozen=True)
class Role:
    """A role with inline policies."""

    cloud: Cloud
    arn: str

    @classmethod
    def of_step(cls, cloud: Cloud, step: str) -> "Role":
        """The role of a function."""
        return cls(cloud, cloud.functions[step]["Role"])

    @classmethod
    def of_machine(cls, cloud: Cloud, machine_arn: str) -> "Role":
        """The role of a state machine."""
        return cls(cloud, cloud.step_functions.describe_state_machine(stateMachineArn=machine_arn)["roleArn"])

    @property
    def name(self) -> str:
        return self.arn.rpartition("/")[2]

    def permissions(self) -> set[Permission]:
        """Everything that it allows."""
        return {
            Permission(action, resource)
            for document in self._policies().values()
            for statement in document["Statement"]
            for action in _as_list(statement["Action"])
            for resource in _as_list(statement["Resource"])
        }

    @contextmanager
    def without(self, action: str, resource: str | None = None) -> Iterator[None]:
        """Within the block an action is not allowed: on a resource as a policy names it, or on any."""
        before = self._policies()
        try:
            for name, document in before.items():
                self._put(name, _without(document, action, resource))
            yield
        finally:
            for name, document in before.items():
                self._put(name, document)

    def drop_conditions(self) -> None:
        """Leave the actions and the resources: the emulator knows no condition keys of DynamoDB, and refuses."""
        for name, document in self._policies().items():
            for statement in document["Statement"]:
                statement.pop("Condition", None)
            self._put(name, document)

    def allows(self, permission: Permission, context: Mapping[str, str] | None = None) -> bool:
        """The decision of IAM's own simulation.

        Args:
            permission: what is asked for.
            context: condition keys and values of the request. The emulator ignores them.
        """
        entries = [
            {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "stringList"}
            for key, value in (context or {}).items()
        ]
        [result] = self._iam.simulate_principal_policy(
            PolicySourceArn=self.arn,
            ActionNames=[permission.action],
            ResourceArns=[permission.resource],
            ContextEntries=entries,
        )["EvaluationResults"]
        return bool(result["EvalDecision"] == "allowed")

    @property
    def _iam(self) -> Any:
        return self.cloud.client("iam")

    def _policies(self) -> dict[str, Any]:
        names = self._iam.list_role_policies(RoleName=self.name)["PolicyNames"]
        return {
            name: self._iam.get_role_policy(RoleName=self.name, PolicyName=name)["PolicyDocument"] for name in names
        }

    def _put(self, name: str, document: Any) -> None:
        self._iam.put_role_policy(RoleName=self.name, PolicyName=name, PolicyDocument=json.dumps(document))


def _without(document: Any, action: str, resource: str | None) -> Any:
    # One statement for each permission, so that one of them can be left out.
    statements = [
        {**statement, "Action": each_action, "Resource": each_resource}
        for statement in document["Statement"]
        for each_action in _as_list(statement["Action"])
        for each_resource in _as_list(statement["Resource"])
        if each_action != action or resource not in (None, each_resource)
    ]
    # A policy has at least one statement.
    return {**document, "Statement": statements or [_NOTHING]}


_NOTHING = {"Effect": "Allow", "Action": "none:None", "Resource": "arn:aws:none:::none"}


def _as_list(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]
