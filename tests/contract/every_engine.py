"""``make engines``: the contract on every engine, dynoxide too where cargo can build it.

What is on the command line goes to pytest. Says at the end on which engines the contract ran; 1 when it broke on one.
"""

import os
import subprocess
import sys
from pathlib import Path

from contract.engines import DYNOXIDE, engine_names
from rich.console import Console
from ticketlock_local.checkout import ROOT
from ticketlock_local.dynoxide import dynoxide_program
from ticketlock_local.errors import CargoMissing, EmulatorError


def main() -> int:
    """Run the contract, and say where."""
    console = Console(stderr=True)
    missing: CargoMissing | EmulatorError | None = None
    try:
        dynoxide_program()
        os.environ[DYNOXIDE] = "1"
    except (CargoMissing, EmulatorError) as error:
        missing = error
        os.environ.pop(DYNOXIDE, None)
    tests = str(Path(__file__).parent.relative_to(ROOT))
    code = subprocess.run([sys.executable, "-m", "pytest", tests, *sys.argv[1:]], cwd=ROOT, check=False).returncode
    verdict = "held on" if code == 0 else "BROKE on one of"
    console.print(f"The contract {verdict}: {', '.join(engine_names())}.", style="red" if code else "green")
    if missing is not None:
        warning = f"It did NOT run on dynoxide, so on two engines of others instead of three: {missing}"
        # What cargo says may have brackets.
        console.print(warning, style="bold red", soft_wrap=True, markup=False)
    return code


if __name__ == "__main__":
    sys.exit(main())
