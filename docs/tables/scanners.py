"""What scanners find in the constructs' templates with the settings that they ask for, and why it stays."""

from collections.abc import Iterator, Mapping, Sequence

from ticketlock_cdk.nag import REASONS, WILDCARDS

# As checkov and cfn-guard call what cdk-nag finds, too.
_ALSO: Mapping[str, Sequence[str]] = {
    "LambdaConcurrency": ("CKV_AWS_115", "LAMBDA_CONCURRENCY_CHECK"),
    "LambdaDLQ": ("CKV_AWS_116",),
    "LambdaInsideVPC": ("CKV_AWS_117", "LAMBDA_INSIDE_VPC"),
    "services": ("CKV_AWS_111", "IAM_POLICYDOCUMENT_NO_WILDCARD_RESOURCE"),
}
_ALONE: Mapping[Sequence[str], str] = {
    ("CKV_AWS_173",): (
        "The environment of a function has names of tables and of the service, and the ARN of a state machine: no "
        "secret. Lambda encrypts it with a key of AWS; with yours, no function could start while that does not answer."
    ),
    ("EC2_SECURITY_GROUP_EGRESS_OPEN_TO_WORLD_RULE", "SECURITY_GROUP_EGRESS_ALL_PROTOCOLS_RULE"): (
        "Where your endpoints and resolvers are, the construct does not know: give `security_groups` of your own."
    ),
    ("CW_LOGGROUP_RETENTION_PERIOD_CHECK",): "Of the plain template alone, where a parameter has the number of days.",
}


def findings() -> str:
    """A row for each reason, with the rules that it answers."""
    rules: dict[str, list[str]] = {}
    for rule, reason in REASONS.items():
        rules.setdefault(reason, []).append(rule)
    rows = [
        *((names, [also for name in names for also in _ALSO.get(name, ())], why) for why, names in rules.items()),
        *((["IAM5"], _ALSO.get(what, ()), why) for what, why in WILDCARDS.items()),
        *(((), names, why) for names, why in _ALONE.items()),
    ]
    return "\n".join(_lines(rows))


def _lines(rows: Sequence[tuple[Sequence[str], Sequence[str], str]]) -> Iterator[str]:
    yield "| cdk-nag | checkov, cfn-guard | why it stays |"
    yield "|---|---|---|"
    for nag, others, why in rows:
        yield f"| {', '.join(f'`{name}`' for name in nag)} | {', '.join(f'`{name}`' for name in others)} | {why} |"
