"""What the library and the engine in memory cost in calls of Python functions: a budget for each."""

import json
import os
import subprocess
import sys

from kit.calls import MOST

_COUNTS = "import json; from kit.calls import counted; print(json.dumps(dict(counted())))"


def test_the_library_and_the_engine_in_memory_make_no_more_calls_than_their_budgets_allow() -> None:
    # In a process of its own: what other tests have left in this one makes calls, too.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    counting = subprocess.run([sys.executable, "-c", _COUNTS], env=environment, stdout=subprocess.PIPE, check=True)
    found = json.loads(counting.stdout)
    assert found.keys() == MOST.keys()
    over = {
        what: f"{both} calls, at most {MOST[what]}"
        for what, both in found.items()
        if any(count > most for count, most in zip(both, MOST[what], strict=True))
    }
    assert over == {}, "make them faster; if they have to do more: benchmarks/calls.py --renew prints new bounds"
