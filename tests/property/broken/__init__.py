"""Locks that are broken on purpose, each by one change: shipped, published or tried by others, or made by us.

A named promise must catch each one; if none does, the search is blind there.
"""

from property.broken.elsewhere import BROKEN_ELSEWHERE
from property.broken.found import FOUND
from property.broken.lock import BrokenLock
from property.broken.models import BROKEN_MODELS

BROKEN_LOCKS = (*BROKEN_ELSEWHERE, *BROKEN_MODELS, *FOUND)

__all__ = ["BROKEN_LOCKS", "FOUND", "BrokenLock"]
