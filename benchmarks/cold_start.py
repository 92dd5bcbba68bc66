"""What imports, a cold function and a warm hand-over cost in processor time, measured here; no figure is one of AWS.

    make bench, or: PYTHONPATH=tests python benchmarks/cold_start.py

Imports follow boto3's own and a client of it, in the same process: the median share of their time, and the modules.

A process of its own stands for an execution environment: it imports a handler, which is its initialisation, and gets
its first event; then it hands a lock over again and again. The table is in memory behind TLS on the loopback
interface, with the SDK's own list of authorities beside its certificate. Lambda gives a function a processor in
proportion to its memory, a whole one at 1,769 MB
(https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html): from that the table computes how long the
processor time would take, to which waiting for the network comes.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import boto3
import botocore
from frame import Run, main
from kit.certificates import self_signed
from memory_server import memory_server
from ticketlock_local.cloud.deploy import client_arguments

from ticketlock import create_table

IMPORTS = {"ticketlock": 0.45, "ticketlock.units": 0.8, "ticketlock.aio": 0.95}
"""At most so much of the time of boto3's import with its first client."""
IMPORTING_PROCESSES, QUICK_IMPORTING_PROCESSES = 11, 3
MOST_OF_A_FIRST_EVENT = 0.5
PROCESSES = 3
HAND_OVERS = 10
MEMORY_MB = (256, 512, 1_024, 1_769)
WHOLE_PROCESSOR_MB = 1_769
FUNCTIONS = Path(__file__).parents[1] / "functions"

IMPORTING = """\
import json, sys, time
began = time.process_time()
import boto3
boto3.client("dynamodb", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
then, before = time.process_time(), {*sys.modules}
__import__(sys.argv[1])
ended, names = time.process_time(), {*sys.modules} - before
ours = sum(name.startswith("ticketlock") for name in names)
print(json.dumps([then - began, ended - then, ours, len(names) - ours]))
"""

ENVIRONMENT = """\
import json, os, sys, time
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import kit_of_events
import take_ticket
initialised = time.process_time()
turn = kit_of_events.take(take_ticket, "first")
called = time.process_time()
import check_position, release, wait_for_wake_up
spent = []
for number in range(int(sys.argv[3])):
    holder = kit_of_events.take(take_ticket, f"order-{number}")
    waiter = kit_of_events.take(take_ticket, f"order-{number}")
    wait_for_wake_up.handler(kit_of_events.step("WaitForWakeUp", waiter), None)
    began = time.process_time()
    release.handler({"turn": holder}, None)
    granted = check_position.handler(kit_of_events.step("CheckPosition", waiter), None)
    spent.append(time.process_time() - began)
    assert granted["status"] == "granted", granted
    release.handler({"turn": granted}, None)
median = sorted(spent)[len(spent) // 2]
print(json.dumps({"initialisation": initialised, "first": called - initialised, "hand_over": median}))
"""

EVENTS = """\
import uuid
ARN = "arn:aws:states:us-east-1:123456789012"
ENTERED = "2026-11-21T12:00:00.000Z"

def take(take_ticket, entity):
    execution = f"{ARN}:execution:serialize:{uuid.uuid4()}"
    event = {
        "request": {"entity": entity, "task": {"functionArn": "arn:aws:lambda:us-east-1:123456789012:function:work"}},
        "execution": execution, "targets": None, "defaultRecordWaitSeconds": "Infinity", "defaultPermits": 1,
        "leaseSeconds": 60, "pollSeconds": 5, "handOver": "callback", "continueMachine": f"{ARN}:stateMachine:go-on",
        "pollsAnExecution": 450, "beatsAnExecution": 2000,
    }
    return take_ticket.handler(event, None)["lock"]["turn"]

def step(state, turn):
    more = {"taskToken": "token", "entered": ENTERED, "retry": 0} if state == "WaitForWakeUp" else {}
    return {"turn": turn, "leaseSeconds": 60, "execution": turn["session"]["execution"], **more}
"""


@contextmanager
def aws(folder: Path) -> Iterator[Mapping[str, str]]:
    """A table behind TLS; the environment of those who use it."""
    certificate = Path(self_signed(folder).path)
    authorities = folder / "authorities.pem"
    authorities.write_bytes((Path(botocore.__file__).parent / "cacert.pem").read_bytes() + certificate.read_bytes())
    with memory_server(tls=folder) as url:
        create_table("locks", client=boto3.client("dynamodb", verify=str(authorities), **client_arguments(url)))
        yield {
            "PATH": os.environ["PATH"],
            "TABLE_NAME": "locks",
            "AWS_ENDPOINT_URL": url,
            "AWS_CA_BUNDLE": str(authorities),
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "POWERTOOLS_LOG_LEVEL": "CRITICAL",
            "POWERTOOLS_METRICS_DISABLED": "true",
        }


def measured(folder: Path, environment: Mapping[str, str], processes: int) -> Mapping[str, float]:
    """Processor seconds of so many processes, the median of each figure."""
    command = [sys.executable, "-c", ENVIRONMENT, str(FUNCTIONS), str(folder), str(HAND_OVERS)]
    runs = [
        json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
        for _ in range(processes)
    ]
    return {name: median(run[name] for run in runs) for name in runs[0]}


def imports(run: Run) -> None:
    """Import each module in processes of its own."""
    processes, rows = QUICK_IMPORTING_PROCESSES if run.quick else IMPORTING_PROCESSES, []
    for module, most in IMPORTS.items():
        command = [sys.executable, "-c", IMPORTING, module]
        done = [
            json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for _ in range(processes)
        ]
        share = median(module_s / boto3_s for boto3_s, module_s, *_ in done)
        ms = (median(each[at] for each in done) * 1_000 for at in (0, 1))
        rows.append([module, *(f"{each:.0f} ms" for each in ms), f"{share:.2f}", *done[0][2:]])
        run.compare(f"the import of {module}, of boto3's and its first client's", share, most=most)
    run.table("Imports, processor time", ["module", "boto3", "beyond it", "share", "our modules", "others"], rows)


def functions(run: Run) -> None:
    """Measure both kinds of functions, and compute how long they would take with Lambda's sizes of memory."""
    processes = 1 if run.quick else PROCESSES
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "kit_of_events.py").write_text(EVENTS)
        with aws(folder) as environment:
            late = measured(folder, environment, processes)
            early = measured(folder, {**environment, "AWS_LAMBDA_FUNCTION_NAME": "f"}, processes)
    names = {"initialisation": "initialisation", "first": "first event", "hand_over": "warm hand-over: release, poll"}
    rows: list[list[object]] = []
    for way, found in (("clients at the first event", late), ("clients while it initialises", early)):
        rows += [[], [way]]
        for name, shown in names.items():
            computed = (found[name] * WHOLE_PROCESSOR_MB / memory_mb for memory_mb in MEMORY_MB)
            rows.append([f"  {shown}", *(f"{seconds * 1_000:,.0f} ms" for seconds in (found[name], *computed))])
    columns = ["figure", "processor time", *(f"at {memory_mb:,} MB" for memory_mb in MEMORY_MB)]
    run.table("Processor time, measured here, and what it would take in Lambda", columns, rows)
    text = "the first event with clients of the initialisation, of its time without"
    run.compare(text, early["first"] / late["first"], most=MOST_OF_A_FIRST_EVENT)


def measure(run: Run) -> None:
    """Imports, and functions."""
    run.part(partial(imports, run))
    run.part(partial(functions, run))


if __name__ == "__main__":
    sys.exit(main(measure, __doc__, "fewer processes of each kind"))
