"""Locks that are broken on purpose, each by one change that somebody has shipped, published or tried, or that we made.

Every one has to be caught by a named promise; one that is not says that the search is blind there.
"""

from property.broken.elsewhere import BROKEN_ELSEWHERE
from property.broken.found import FOUND
from property.broken.lock import BrokenLock
from property.broken.models import BROKEN_MODELS

BROKEN_LOCKS = (*BROKEN_ELSEWHERE, *BROKEN_MODELS, *FOUND)

__all__ = ["BROKEN_LOCKS", "FOUND", "BrokenLock"]
