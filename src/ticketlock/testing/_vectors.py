"""Vector indexes of a table: what they refuse of an item. They cannot be searched here.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/VectorSearchTroubleshooting.html
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ticketlock._expressions._values import Item
from ticketlock.testing._faults import invalid

Described = Mapping[str, Any]
_MOST_DIMENSIONS = 4_096


def searched_in(index: Described) -> list[str]:
    """The attributes of its search schema."""
    return [each["AttributeName"] for each in index.get("SearchSchema", ())]


def check_created(index: Described, kinds: Mapping[str, str]) -> None:
    """Refuse an index that cannot be created.

    Raises:
        Refused: ValidationException.
    """
    if not set(searched_in(index)) <= kinds.keys():
        raise invalid("One element in SearchSchema is not defined in attribute definitions")
    if not 1 <= index["Dimensions"] <= _MOST_DIMENSIONS:
        raise invalid(f"Dimensions is 1 to {_MOST_DIMENSIONS}, and is {index['Dimensions']}")


def check_vectors(item: Item, indexes: Iterable[Described], kinds: Mapping[str, str]) -> None:
    """Refuse an item that one of the indexes cannot take.

    Raises:
        Refused: ValidationException.
    """
    for index in indexes:
        name, dimensions = index["VectorAttribute"]["AttributeName"], index["Dimensions"]
        vector = item.get(name, {"L": [{"N": "0"}] * dimensions})
        if vector.keys() != {"L"} or any(each.keys() != {"N"} for each in vector["L"]):
            raise invalid(f"One or more parameter values were invalid: Invalid type for parameter {name}")
        if len(vector["L"]) != dimensions:
            raise invalid(
                f"One or more parameter values were invalid: the vector {name} has {len(vector['L'])} dimensions, and "
                f"the index {index['IndexName']} has {dimensions}"
            )
        for searched in searched_in(index):
            if searched in item and item[searched].keys() != {kinds[searched]}:
                raise invalid(
                    "One or more parameter values were invalid: "
                    f"Type mismatch for Index Key {searched} Expected: {kinds[searched]}"
                )
