"""A state machine whose histories a key of the user's encrypts, with a part under the lock."""

import time

from e2e.aws.checked import LEASE_S, Checked, NotSeen, assumes, entity

_KEYS = "https://docs.aws.amazon.com/step-functions/latest/dg/encryption-at-rest.html"
_ANSWERS = "https://docs.aws.amazon.com/step-functions/latest/apireference/API_SendTaskSuccess.html"
_NO_KEYS = "it encrypts nothing, and its keys refuse nothing"


@assumes(
    assumed=f"it succeeds within {LEASE_S // 2} s of the release: the functions may use the machine's key",
    link=_ANSWERS,
    emulator_lacks=_NO_KEYS,
)
def test_a_part_of_an_encrypted_machine_is_woken_by_a_release(checked: Checked) -> tuple[bool, str]:
    """Let it park behind an execution of the lock's own machine, and stop that."""
    name = entity("encrypted-waiter")
    holder, waiter = _parked(checked, name)
    checked.step_functions.stop_execution(executionArn=holder)
    began = time.monotonic()
    end = checked.ended(waiter)
    took_s = time.monotonic() - began
    return end.status == "SUCCEEDED" and took_s < LEASE_S / 2, f"{end.status} {end.error} after {took_s:.1f} s"


@assumes(
    assumed=f"its queue row is gone within {LEASE_S // 2} s, though the event has no input",
    link=_KEYS,
    emulator_lacks=_NO_KEYS,
)
def test_the_clean_up_removes_a_part_of_an_encrypted_machine_that_was_stopped(checked: Checked) -> tuple[bool, str]:
    """Stop one that waits, with an error and a cause."""
    name = entity("encrypted-stopped")
    holder, waiter = _parked(checked, name)
    if not checked.lock(name).rows:
        raise NotSeen("it has no queue row")
    checked.step_functions.stop_execution(executionArn=waiter, error="Stopped", cause="by the checklist")
    began = time.monotonic()
    checked.wait_until_queued(name)
    took_s = time.monotonic() - began
    checked.step_functions.stop_execution(executionArn=holder)
    return took_s < LEASE_S / 2, f"{took_s:.1f} s"


def _parked(checked: Checked, name: str) -> tuple[str, str]:
    """An execution of the lock's own machine that holds, and one of the encrypted machine that is parked behind it."""
    holder = checked.nest(name, 3 * LEASE_S)
    checked.wait_until_held(name, holder)
    waiter = checked.start({"entity": name, "seconds": 0}, checked.outputs["EncryptedArn"])
    checked.wait_until_parked(waiter)
    return holder, waiter
