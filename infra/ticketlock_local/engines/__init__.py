"""Engines in separate processes: emulators that end with the process that started them."""

from ticketlock_local.engines.emulator import STOP_GRACE_S, Emulator, health
from ticketlock_local.engines.processes import command_line, end_group
