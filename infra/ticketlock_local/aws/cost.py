"""An upper estimate of the cost of a run, shown before anything is made."""

# us-east-1: https://aws.amazon.com/step-functions/pricing/
_A_TRANSITION_USD = 25 / 1_000_000
# For all checks except the bursts; for each start of a burst, and each execution that holds, beats and is stopped.
_TRANSITIONS = 1_500
_TRANSITIONS_A_START = 25
# Requests to DynamoDB and Lambda, logs, traces, metrics, files: cents at these numbers.
_ALL_ELSE_USD = 0.20


def estimate_usd(burst_starts: int) -> float:
    """The dollars at most, at the prices of us-east-1 without any free tier.

    Args:
        burst_starts: how many executions a burst has; 0 for none.
    """
    return _ALL_ELSE_USD + _A_TRANSITION_USD * (_TRANSITIONS + _TRANSITIONS_A_START * burst_starts)


def in_words(burst_starts: int) -> str:
    """The same in words."""
    bursts = f"two bursts of {burst_starts} executions" if burst_starts else "no bursts"
    return f"about ${estimate_usd(burst_starts):.2f}, with {bursts} (prices of us-east-1, without a free tier)"
