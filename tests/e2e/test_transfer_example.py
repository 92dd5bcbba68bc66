"""The example in examples/transfer, deployed by the CDK: the money moves once, and not after the lock was lost.

The roles are enforced: a try fails where its function lacks a permission for a while. The emulator redrives nothing, so
what a redrive does is done by hand: the state's function gets its event once more. It names every exception of a
function alike: tests/workflow/interpreted asks by which names a state fails.
"""

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from e2e.cloud import Cloud, FunctionFailed
from e2e.conftest import allow_answers_on_everything
from e2e.roles import Role
from ticketlock_local.cloud.deploy import deploy
from ticketlock_local.engines.emulator import Emulator

from ticketlock import LockClient, LockName

pytestmark = [
    pytest.mark.shows("state that writes once"),
    pytest.mark.verify("a deployment of its own; tests/workflow/interpreted asks the same of the definition"),
]

APP = Path(__file__).parents[2] / "examples" / "transfer" / "app.py"
ACCOUNTS = "accounts"
BALANCE, AMOUNT = 100, 10
# Of giver and taker.
BEFORE, AFTER = (BALANCE, BALANCE), (BALANCE - AMOUNT, BALANCE + AMOUNT)
NOT_HELD = "the lock is not held with this fencing token any more"
COMMIT, TELL = "dynamodb:PutItem", "sqs:SendMessage"


@dataclass
class Transfers:
    """The deployed example."""

    cloud: Cloud

    @property
    def function(self) -> Any:
        """Its configuration."""
        return self.cloud.configuration(self.cloud.outputs["TransferFunctionName"])

    def without(self, action: str) -> AbstractContextManager[None]:
        """Within the block the function lacks a permission."""
        return Role(self.cloud, self.function["Role"]).without(action)

    def new_account(self) -> str:
        """The id of an account that nobody has used."""
        account = f"account-{uuid.uuid4().hex}"
        self.cloud.put("AccountsTableName", {"id": account, "balance": BALANCE})
        return account

    def tries(self, arn: str) -> list[Mapping[str, Any]]:
        """The events that the function got from an execution: it logs each."""
        return [event for event in self.cloud.logged(self.function) if event.get("execution") == arn]

    def invoke(self, event: Mapping[str, Any]) -> Any:
        """The function's result."""
        return self.cloud.invoke(self.cloud.outputs["TransferFunctionName"], event)

    @contextmanager
    def another_owner_of(self, lock: LockName) -> Iterator[None]:
        """Within the block another owner holds the lock."""
        locks = LockClient(self.cloud.outputs["TableName"], client=self.cloud.dynamodb)
        with locks, locks.acquire(lock.entity, namespace=lock.namespace):
            yield

    def receipts(self) -> list[str]:
        """The ids of the transfers with a receipt since; the receipts are taken from the queue."""
        sqs, url, found = self.cloud.client("sqs"), self.cloud.outputs["ReceiptsUrl"], []
        while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            for message in messages:
                found.append(json.loads(message["Body"])["transferId"])
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return found


@dataclass
class Transfer:
    """One transfer.

    Attributes:
        arn: that of its execution, once it is started.
    """

    transfers: Transfers
    giver: str
    taker: str
    arn: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def start(self) -> None:
        transfer = {"id": self.id, "giver": self.giver, "taker": self.taker, "amount": AMOUNT}
        self.arn = self.transfers.cloud.start({"transfer": transfer})

    @property
    def balances(self) -> tuple[int, int]:
        """The balances of giver and taker."""
        giver, taker = (self.transfers.cloud.got("AccountsTableName", id) for id in (self.giver, self.taker))
        return int(giver["balance"]), int(taker["balance"])

    @property
    def lock(self) -> LockName:
        return LockName(self.giver, ACCOUNTS)


@pytest.fixture(scope="module")
def transfers(guarded_emulator: Emulator) -> Transfers:
    outputs = deploy(guarded_emulator, app=APP, stack="Transfer")
    allow_answers_on_everything(guarded_emulator.endpoint)
    renamed = {"StateMachineArn": outputs["TransferWorkflowArn"], "TableName": outputs["LockTableName"]}
    return Transfers(Cloud(guarded_emulator.endpoint, {**outputs, **renamed}))


@pytest.fixture
def transfer(transfers: Transfers) -> Transfer:
    """Between two new accounts."""
    return Transfer(transfers, transfers.new_account(), transfers.new_account())


def test_a_transfer_moves_the_money_sends_a_receipt_and_frees_the_lock(
    transfers: Transfers, transfer: Transfer
) -> None:
    transfer.start()
    ended = transfers.cloud.ended(transfer.arn)
    assert ended.status == "SUCCEEDED", ended
    assert ended.output == {"transferId": transfer.id, "amount": AMOUNT}
    assert transfer.balances == AFTER
    assert transfers.receipts() == [transfer.id]
    assert transfers.cloud.is_free(transfer.giver, ACCOUNTS)


def taken_away(transfers: Transfers, transfer: Transfer) -> None:
    [holder] = transfers.cloud.item(transfer.giver, ACCOUNTS).holders
    transfers.cloud.locks.force_release(transfer.lock, holder.fencing_token)


def test_a_state_that_is_retried_after_its_commit_and_redriven_moves_the_money_once(
    transfers: Transfers, transfer: Transfer
) -> None:
    with transfers.without(TELL):
        transfer.start()
        transfers.cloud.wait_until(lambda: len(transfers.tries(transfer.arn)) > 1, "a second try")
        transfers.cloud.stop(transfer.arn)
        assert transfer.balances == AFTER
        assert transfers.receipts() == []
        taken_away(transfers, transfer)
    # Another owner holds the lock by then: the commit was made under the earlier grant.
    with transfers.another_owner_of(transfer.lock):
        assert transfers.invoke(transfers.tries(transfer.arn)[0])["transferId"] == transfer.id
    assert transfer.balances == AFTER
    # The emulator may go on with the stopped execution's tries.
    assert set(transfers.receipts()) == {transfer.id}


def test_a_state_whose_workflow_has_lost_the_lock_moves_no_money(transfers: Transfers, transfer: Transfer) -> None:
    with ExitStack() as until_the_end:
        with transfers.without(COMMIT):
            transfer.start()
            transfers.cloud.wait_until(lambda: bool(transfers.tries(transfer.arn)), "a try that cannot commit")
            transfers.cloud.stop(transfer.arn)
            taken_away(transfers, transfer)
            until_the_end.enter_context(transfers.another_owner_of(transfer.lock))
        late = transfers.tries(transfer.arn)[0]
        with pytest.raises(FunctionFailed, match=NOT_HELD):
            transfers.invoke(late)
    # Nor if the lock is free then, and not the workflow's.
    with pytest.raises(FunctionFailed, match=NOT_HELD):
        transfers.invoke(late)
    assert transfer.balances == BEFORE
