"""For tests of durable functions with AWS's local runner: its callbacks, which locks answer, and its clock.

    local = LocalLambda()
    memory = MemoryDynamoDB(clock=local)
    locks = DurableLocks("locks", client=memory, lambda_client=local, clocks=local)

    def test_an_order_is_shipped():
        with DurableFunctionTestRunner(handler) as runner:
            local.serve(runner)
            assert runner.run(input='{"order": "42"}').status is InvocationStatus.SUCCEEDED

Needs ``aws-durable-execution-sdk-python-testing``.
"""

from typing import Any

from aws_durable_execution_sdk_python_testing.exceptions import ResourceNotFoundException
from aws_durable_execution_sdk_python_testing.token import CallbackToken
from botocore.exceptions import ClientError

from ticketlock.wire import Reading, SystemClocks

__all__ = ["LocalLambda"]


class LocalLambda:
    """Lambda's client, and the clocks, of a local runner, which skips waits unless it was told not to.

    Attributes:
        answered: the ids of the callbacks that were answered.
        refused: those that had ended before.
        asked: the ARNs of the executions whose state was asked for.
    """

    def __init__(self) -> None:
        self._runner: Any = None
        self.answered: list[str] = []
        self.refused: list[str] = []
        self.asked: list[str] = []

    def serve(self, runner: Any) -> None:
        """Stand for the service that this ``DurableFunctionTestRunner`` replaces."""
        self._runner = runner

    def read(self) -> Reading:
        """The runner's clock; the machine's own before there is a runner."""
        if self._runner is None:
            return SystemClocks().read()
        # The runner has no public way to ask for its time.
        now_ms = int(self._runner._clock.now().timestamp() * 1_000)
        return Reading(now_ms, now_ms)

    def send_durable_execution_callback_success(self, *, CallbackId: str, Result: bytes = b"") -> dict[str, Any]:
        """As of Lambda's client."""
        try:
            # The runner would take the answer to one that has ended.
            execution = self._runner._store.load(CallbackToken.from_str(CallbackId).execution_arn)
            if execution.is_complete:
                raise ResourceNotFoundException(f"{execution.durable_execution_arn} has ended")
            self._runner.send_callback_success(CallbackId, Result)
        except ResourceNotFoundException as error:
            self.refused.append(CallbackId)
            raise _refusal("CallbackTimeoutException", error, "SendDurableExecutionCallbackSuccess") from error
        self.answered.append(CallbackId)
        return {}

    def get_durable_execution(self, *, DurableExecutionArn: str, IncludeExecutionData: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """As of Lambda's client; only the state."""
        self.asked.append(DurableExecutionArn)
        try:
            execution = self._runner._store.load(DurableExecutionArn)
        except ResourceNotFoundException as error:
            raise _refusal("ResourceNotFoundException", error, "GetDurableExecution") from error
        return {"DurableExecutionArn": DurableExecutionArn, "Status": execution.current_status().value}


def _refusal(code: str, error: Exception, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": str(error)}}, operation)
