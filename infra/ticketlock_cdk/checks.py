"""What several settings of the constructs must be, checked when the template is synthesised."""


def check_flag(name: str, value: object) -> None:
    """Check that a value is a bool, not a text such as a value from the context.

    Raises:
        ValueError: it is not a bool; the message names it.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}; allowed: True or False")


def check_bound(name: str, value: object, least: int, most: int | None) -> None:
    """Check that a value is a whole number within its bounds; None for no upper one.

    Raises:
        ValueError: names it.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= (value if most is None else most):
        to = "on" if most is None else f"to {most:,}"
        raise ValueError(f"{name} is {value!r}; allowed: a whole number from {least} {to}")


def check_construct(name: str, given: object, attribute: str, allowed: str) -> None:
    """Check that a value is a construct of a kind, which has this attribute.

    Raises:
        ValueError: names the property.
    """
    if not hasattr(given, attribute):
        raise ValueError(f"{name} is {given!r}; allowed: {allowed}")
