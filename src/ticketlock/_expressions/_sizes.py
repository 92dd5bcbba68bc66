from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schema:
    key: Mapping[str, str]
    indexes: tuple[Mapping[str, str], ...] = ()
