"""Errors of a request, and of the item that it is applied to. The texts are DynamoDB's own if they are known."""


class ExpressionInvalid(ValueError):
    """The request is invalid for any item: DynamoDB's ValidationException.

    Attributes:
        message: what is wrong.
        where: the attribute of an item, and the members and elements in it; empty if the error is not in an item.
    """

    def __init__(self, message: str, where: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.where = where

    def within(self, step: str | int) -> "ExpressionInvalid":
        """The same error, located in this attribute, member or element."""
        return ExpressionInvalid(self.message, (step, *self.where))


class ItemInvalid(ValueError):
    """DynamoDB would not store the item, or an update does not fit it.

    DynamoDB reports it as an error, or as the reason of a cancelled transaction.

    Attributes:
        message: what does not fit.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ItemTooBig(ItemInvalid):
    """An item has more bytes than DynamoDB accepts.

    Attributes:
        size_bytes: the item's size.
        most_bytes: what DynamoDB accepts.
    """

    def __init__(self, message: str, *, size_bytes: int, most_bytes: int) -> None:
        super().__init__(message)
        self.size_bytes = size_bytes
        self.most_bytes = most_bytes
