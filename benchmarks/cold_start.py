"""What imports, a cold function and a warm hand-over cost in processor time, measured here; no figure is one of AWS.

    make bench, or: PYTHONPATH=tests python benchmarks/cold_start.py

Imports follow boto3's own and a client of it, in the same process: the median share of their time.

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import boto3
import botocore
from frame import Run, main
from kit.certificates import self_signed
from memory_server import memory_server
from ticketlock_local.checkout import ROOT
from ticketlock_local.cloud.deploy import client_arguments, client_environment

from ticketlock import create_table

IMPORTS = {"ticketlock": 0.45, "ticketlock.units": 0.8, "ticketlock.aio": 0.95}
"""At most so much of the time of boto3's import with its first client."""
IMPORTING_PROCESSES, QUICK_IMPORTING_PROCESSES = 11, 3
MOST_OF_A_FIRST_EVENT = 0.5
PROCESSES = 3
HAND_OVERS = 10
MEMORY_MB = (256, 512, 1_024, 1_769)
WHOLE_PROCESSOR_MB = 1_769
FIGURES = ("initialisation", "first event", "warm hand-over: release, poll")


@contextmanager
def aws() -> Iterator[Mapping[str, str]]:
    """A table behind TLS; the environment of the functions."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        certificate, authorities = Path(self_signed(folder).path), folder / "authorities.pem"
        of_the_sdk = Path(botocore.__file__).parent / "cacert.pem"
        authorities.write_bytes(of_the_sdk.read_bytes() + certificate.read_bytes())
        with memory_server(tls=folder) as url:
            create_table("locks", client=boto3.client("dynamodb", verify=str(authorities), **client_arguments(url)))
            yield {
                **client_environment(url),
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT / "functions"),
                "TABLE_NAME": "locks",
                "AWS_CA_BUNDLE": str(authorities),
                "POWERTOOLS_LOG_LEVEL": "CRITICAL",
                "POWERTOOLS_METRICS_DISABLED": "true",
            }


def measured(processes: int, *arguments: str, env: Mapping[str, str] | None = None) -> Sequence[tuple[float, ...]]:
    """Processor seconds of so many processes: for each figure that they print, those of all."""
    command = [sys.executable, str(Path(__file__).with_name("cold_process.py")), *arguments]
    done = [subprocess.run(command, env=env, check=True, capture_output=True).stdout for _ in range(processes)]
    return list(zip(*map(json.loads, done), strict=True))


def imports(run: Run) -> None:
    """Import each module in processes of its own."""
    rows = []
    for module, most in IMPORTS.items():
        found = measured(QUICK_IMPORTING_PROCESSES if run.quick else IMPORTING_PROCESSES, "import", module)
        share = median(module_s / boto3_s for boto3_s, module_s in zip(*found, strict=True))
        rows.append([module, *(f"{median(each) * 1_000:.0f} ms" for each in found), f"{share:.2f}"])
        run.compare(f"the import of {module}, of boto3's and its first client's", share, most=most)
    run.table("Imports, processor time", ["module", "boto3", "beyond it", "share"], rows)


def functions(run: Run) -> None:
    """Measure both kinds of functions, and compute how long they would take with Lambda's sizes of memory."""
    with aws() as environment:
        late, early = (
            [median(each) for each in measured(1 if run.quick else PROCESSES, "handle", f"{HAND_OVERS}", env=env)]
            for env in (environment, {**environment, "AWS_LAMBDA_FUNCTION_NAME": "f"})
        )
    rows: list[list[object]] = []
    for way, found in (("clients at the first event", late), ("clients while it initialises", early)):
        rows += [[], [way]]
        for name, measured_s in zip(FIGURES, found, strict=True):
            computed = (measured_s * WHOLE_PROCESSOR_MB / memory_mb for memory_mb in MEMORY_MB)
            rows.append([f"  {name}", *(f"{seconds * 1_000:,.0f} ms" for seconds in (measured_s, *computed))])
    columns = ["figure", "processor time", *(f"at {memory_mb:,} MB" for memory_mb in MEMORY_MB)]
    run.table("Processor time, measured here, and what it would take in Lambda", columns, rows)
    text = "the first event with clients of the initialisation, of its time without"
    run.compare(text, early[1] / late[1], most=MOST_OF_A_FIRST_EVENT)


def measure(run: Run) -> None:
    """Imports, and functions."""
    run.part(partial(imports, run))
    run.part(partial(functions, run))


if __name__ == "__main__":
    sys.exit(main(measure, __doc__, "fewer processes of each kind"))
