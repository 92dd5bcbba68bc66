"""The stack on an emulator: the CDK's own command, the deployment, and the cloud of `make local`."""
