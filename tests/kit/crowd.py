"""Processes that acquire and release a few locks; some of them are suspended or killed meanwhile."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from kit.kept import Kept
from kit.lock_history import Event, operations, outcome
from kit.lock_model import judge, lease_runs
from kit.places import until
from kit.programs import LEASE_S, Counter, Programs, Shared, heard, tell
from kit.recorded import process_name
from kit.works import TWO, alone, come_and_go, reading, several
from ticketlock_local.demo.checks import Verdict

from ticketlock.wire._driver import SystemClocks

Process = subprocess.Popen[str]
Who = Callable[[Iterable[Event], str], set[str]]


def holding(events: Iterable[Event], entity: str) -> set[str]:
    """The processes that were granted a lock, and have not begun to release it."""
    released = {event.of for event in events if event.action == "release"}
    return {
        event.process
        for event in events
        if (event.entity, event.action, event.kind) == (entity, "acquire", "applied")
        and event.operation not in released
    }


def waiting(events: Iterable[Event], entity: str) -> set[str]:
    """The processes with a row in the queue."""
    asking = operations(event for event in events if (event.entity, event.action) == (entity, "acquire"))
    return {call[0].process for call in asking if len(call) > 1 and outcome(call) == "unknown"}


class Crowd:
    """Some processes, which record a history.

    Args:
        shared: where they record, and what they work on: the locks of ``works``.
        programs: starts and ends them.
        kept: the history.
    """

    def __init__(self, shared: Shared, programs: Programs, kept: Kept) -> None:
        self.entities = [name(shared.entity) for name in (alone, several, reading)]
        self._shared = shared
        self._programs = programs
        self._kept = kept
        self._free: list[Process] = []

    def grow(self, processes: int) -> None:
        """Start some more, and let them begin as soon as all of them are ready."""
        started = [self._programs.start(come_and_go) for _ in range(processes)]
        assert [heard(process) for process in started] == ["here"] * processes
        for process in started:
            tell(process, "go on")
        self._free += started

    def come_and_go(self, grants: int) -> None:
        """Wait until locks were granted so many times."""
        granted = ("acquire", "applied")
        until(
            lambda: sum((each.action, each.kind) == granted for each in self._kept.events()) >= grants,
            f"{grants} grants",
        )

    def suspend(self, who: Who, entity: str) -> Process:
        """Suspend a process that holds a lock, or waits for it."""
        return self.suspend_at_any(who, [entity])[0]

    def suspend_at_any(self, who: Who, entities: Sequence[str]) -> tuple[Process, str]:
        """The same, at the first of these locks where it is possible. Also returns which lock."""

        def suspended() -> tuple[Process, str] | None:
            # All of them, so that what is found is still true.
            for process in self._free:
                process.send_signal(signal.SIGSTOP)
                _, status = os.waitpid(process.pid, os.WUNTRACED)
                assert os.WIFSTOPPED(status), "a process has ended; see what it printed"
            names = {entity: who(self._kept.events(), entity) for entity in entities}
            found = [
                (each, entity) for entity in entities for each in self._free if process_name(each.pid) in names[entity]
            ]
            chosen = found[0] if found else None
            for process in self._free:
                if chosen is None or process is not chosen[0]:
                    process.send_signal(signal.SIGCONT)
            return chosen

        process, entity = until(suspended, f"a process {who.__name__} {' or '.join(entities)}")
        self._free.remove(process)
        return process, entity

    def resume(self, process: Process) -> None:
        """Continue a suspended process, to the end of what it was doing."""
        seen, name = len(self._kept.events()), process_name(process.pid)
        process.send_signal(signal.SIGCONT)
        until(
            lambda: any(
                (event.process, event.action, event.kind) == (name, "acquire", "invoked")
                for event in self._kept.events()[seen:]
            ),
            f"something new by {name}",
        )
        self._free.append(process)

    def kill(self, process: Process) -> None:
        """Kill a suspended process, and start another one instead."""
        process.kill()
        assert process.wait() == -signal.SIGKILL
        self.grow(1)

    def outlast_a_lease(self, entity: str) -> None:
        """Wait for a grant of the lock later than a lease from now."""
        seen, over_ms = len(self._kept.events()), SystemClocks().read().local_ms + LEASE_S * 1_000
        until(
            lambda: any(
                (event.entity, event.action, event.kind) == (entity, "acquire", "applied") and event.local_ms > over_ms
                for event in self._kept.events()[seen:]
            ),
            f"a grant of {entity}",
        )

    def end(self) -> None:
        """Let all processes end; afterwards no lease is running."""
        for process in self._free:
            tell(process, "that is all")
        assert [heard(process) for process in self._free] == ["done"] * len(self._free)
        with self._shared.locks() as locks:
            recorded = self._shared.recorded(locks)
            for entity in self.entities:
                permits = TWO if entity == several(self._shared.entity) else 1
                recorded.acquire(entity, permits=permits).release()
            # With permits, crashed processes may still have a row or a grant.
            until(
                lambda: not any(lease_runs(locks.inspect(entity)) for entity in self.entities),
                "the end of the leases of crashed processes",
            )

    def verdict(self) -> Verdict:
        """What the history, the table and the counters show."""
        counted = [alone(self._shared.entity), reading(self._shared.entity)]
        with self._shared.locks() as locks:
            left = {entity: locks.inspect(entity) for entity in self.entities}
        counters = {entity: Counter(replace(self._shared, entity=entity)).read() for entity in counted}
        return judge(self._kept.read(), left, counters)
