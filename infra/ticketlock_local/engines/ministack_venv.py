"""The emulator's own virtual environment.

Functions run on the emulator's interpreter: in the project's environment they would import packages
that their asset lacks, and pass here what fails on AWS.
"""

from pathlib import Path

from ticketlock_local.engines.pinned_venv import pinned_python

_REQUIREMENTS = Path(__file__).with_name("ministack-requirements.txt")


def ministack_python() -> Path:
    """Return the interpreter of the emulator's environment.

    Raises:
        EmulatorError: the packages cannot be installed.
    """
    return pinned_python("ministack-venv", _REQUIREMENTS)
