"""Where the definitions and the handlers are: beside this package in a wheel, at the top of a checkout."""

from pathlib import Path

_PACKAGE = Path(__file__).parent
_BUNDLED = _PACKAGE / "_bundled"


def source_folder(name: str) -> Path:
    """The folder ``functions`` or ``statemachines``.

    Raises:
        FileNotFoundError: the installation lacks it.
    """
    for base in (_BUNDLED, _PACKAGE.parent.parent):
        if (base / name).is_dir():
            return base / name
    raise FileNotFoundError(f"this installation of ticketlock lacks its folder {name!r}: install it again")
