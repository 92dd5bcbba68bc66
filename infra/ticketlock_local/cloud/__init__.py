"""The stack on an emulator: the CDK's own command, its deployment, the cloud that `make local` leaves running."""
