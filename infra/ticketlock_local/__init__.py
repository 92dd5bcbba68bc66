"""The local cloud: an emulator on the loopback interface, the real CDK CLI, the demo."""
