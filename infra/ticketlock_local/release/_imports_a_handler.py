"""A program for an environment of a release: it imports the handler of a function, and all else from its code, too."""

import importlib
import sys

folder, name = sys.argv[1:]
sys.path.insert(0, folder)
module, _, function = name.rpartition(".")
assert callable(getattr(importlib.import_module(module), function))
for package in (module, "ticketlock", "aws_lambda_powertools"):
    assert str(importlib.import_module(package).__file__).startswith(folder), f"{package} is not in the function's code"
