"""How a unit is shown, and what is said of one that is dropped: the same for threads and for tasks."""

import warnings

from ticketlock.units._verbs import Verbs


class Shown:
    """A unit of one of the two faces.

    Attributes:
        id: identifies the unit; of a resumed unit, the id under which it was saved.
    """

    def __init__(self, verbs: Verbs) -> None:
        self.id = verbs.terms.id
        self._verbs = verbs

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}, {self._verbs.life.in_words}>"

    def __del__(self) -> None:
        if self._verbs.is_waiting_for_its_end:
            warnings.warn(
                f"the unit {self.id} was never ended, and has written nothing: use it in `with`, or call `commit` or "
                "`rollback`",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
