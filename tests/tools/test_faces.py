"""What `make faces` generates: the methods for tasks that differ from those for threads in `await` alone."""

from ticketlock_local.faces import BY_HAND, GENERATED, generated

THREADS = '''
class Units:
    def table(self, name: str, *, guarded: bool = False) -> UnitTable:
        """A table of yours.

        Raises:
            TableNotFound: there is none.
        """
        return self._performer.perform_steps(self._tables.table(name, guarded=guarded))

    def begin(self) -> Unit:
        """A new unit."""
        return self._unit()

    def get_all(self, wanted: Any) -> Any:
        return self._outside(isolation).get_all(wanted)

    def close(self) -> None:
        self._performer.drive(self._ends())
'''

TASKS = f'''
class Units:
{GENERATED}

    async def table(self):
        """One of your tables."""

    def begin(self): ...

    async def get_all(self): ...

{BY_HAND}

    async def close(self) -> None:
        """Wait."""
'''


def test_a_method_below_the_marker_gets_the_signature_and_the_body_for_threads_and_keeps_its_docstring() -> None:
    assert (
        generated(TASKS, THREADS, "Units")
        == f'''
class Units:
{GENERATED}

    async def table(self, name: str, *, guarded: bool = False) -> UnitTable:
        """One of your tables."""
        return await self._performer.perform_steps(self._tables.table(name, guarded=guarded))

    def begin(self) -> Unit:
        return self._unit()

    async def get_all(self, wanted: Any) -> Any:
        return await self._outside(isolation).get_all(wanted)

{BY_HAND}

    async def close(self) -> None:
        """Wait."""
'''
    )
