"""What `make check` and `make audit` ask of the repository."""
