"""The local cloud: an emulator on the loopback interface, the CDK's own CLI, and the demo."""
