"""The checks of the repository by `make check` and `make audit`."""
