"""Engines in processes of their own: emulators that live no longer than who started them."""
