"""What can be wrong: the request, or the item that it meets. The texts are DynamoDB's own where they are known."""


class ExpressionInvalid(ValueError):
    """The request is wrong, whatever the item: DynamoDB's ValidationException.

    Attributes:
        message: what is wrong.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ItemInvalid(ValueError):
    """An update does not fit the item that it found: an error of its own, or the reason of a cancelled transaction.

    Attributes:
        message: what does not fit.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
