"""Engines in separate processes: emulators that end with the process that started them."""
