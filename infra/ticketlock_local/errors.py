"""The errors of the local cloud."""


class LocalCloudError(Exception):
    """The local cloud failed; the message says what to read or to do."""


class EmulatorError(LocalCloudError):
    """The emulator did not install or start."""


class CargoMissing(LocalCloudError):
    """There is no cargo to build an engine with."""


class CdkError(LocalCloudError):
    """A command of the CDK failed; the message ends with the tail of its output."""


class ReleaseError(LocalCloudError):
    """A release was refused, or does not work; the message says what to mend."""
