"""What the unit tests share."""

from hypothesis import HealthCheck, settings

# On a busy machine an example may take longer than hypothesis would let it: that is no finding here.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")
