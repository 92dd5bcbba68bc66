"""What can be wrong: the request, or the item that it meets. The texts are DynamoDB's own where they are known."""


class ExpressionInvalid(ValueError):
    """The request is wrong, whatever the item: DynamoDB's ValidationException.

    Attributes:
        message: what is wrong.
        where: of an item's content, the attribute, and the members and elements in it; empty where it is no item's.
    """

    def __init__(self, message: str, where: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.where = where

    def within(self, step: str | int) -> "ExpressionInvalid":
        """The same, of something in this attribute, member or element."""
        return ExpressionInvalid(self.message, (step, *self.where))


class ItemInvalid(ValueError):
    """An item is none that DynamoDB stores, or an update does not fit it.

    An error of its own, or the reason of a cancelled transaction.

    Attributes:
        message: what does not fit.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ItemTooBig(ItemInvalid):
    """An item has more bytes than DynamoDB takes.

    Attributes:
        size_bytes: what it has.
        most_bytes: what DynamoDB takes.
    """

    def __init__(self, message: str, *, size_bytes: int, most_bytes: int) -> None:
        super().__init__(message)
        self.size_bytes = size_bytes
        self.most_bytes = most_bytes
