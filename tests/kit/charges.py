"""A process that charges an account once, however many of them do, and says what its call has returned."""

import json
import os
import sys
import uuid

from kit.programs import say

from ticketlock.units import Unit, Units
from ticketlock.wire._sdk import make_client


def charge_once(endpoint: str, units_table: str, accounts_table: str, account: str, engine: str | None) -> None:
    units = Units(units_table, client=make_client(endpoint_url=endpoint))
    accounts = units.table(accounts_table)

    def charge(unit: Unit) -> dict[str, object]:
        after = unit.update(accounts, {"id": account}, "SET balance = balance - :n", {":n": 10})
        return {"process": os.getpid(), "receipt": uuid.uuid4().hex, "left": int(after["balance"])}

    if engine is None:
        say(units.transactional(name=f"charge-{account}")(charge)())
        return
    with units.begin(name=f"charge-{account}", engine="marked") as unit:
        if not unit.repeated:
            unit.result = charge(unit)
    say(unit.result)


if __name__ == "__main__":
    charge_once(*json.loads(sys.argv[1]))
