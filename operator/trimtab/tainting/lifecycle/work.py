"""Doing what the newest plan says, node by node: a few at a time, and each by one worker at a time."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.kube.api import ApiError, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.rules.taints import NO_EXECUTE
from trimtab.tainting.conditions import TaintChange
from trimtab.tainting.health import Answer
from trimtab.tainting.lifecycle.requests import Written, ask, write_mark, write_taints
from trimtab.tainting.lifecycle.todo import Todo
from trimtab.tainting.patches import Outcome, look_again
from trimtab.tainting.services import Services

log = logging.getLogger(__name__)

AT_ONCE: Final = 16
"""Nodes at a time."""

MANY: Final = 3
"""After so many failures in a row a node does not hold up those behind it in its zone's queue, and people are told."""


SEEN: Final = 30.0
"""Seconds in which our watch shows what was written, or that a node is gone. If not, the node is seen to again: what
was said was said by mistake, as a 404 by a proxy before an API server that is starting."""


CROWD: Final = 100
"""Nodes a second that are tried again at most, as far as that takes no longer than :data:`LONGEST`."""

LONGEST: Final = 30.0
"""Seconds until a node is tried again that is one of thousands."""


class _Unseen(Struct, frozen=True):
    """What was done about a node, and the resource versions of it that do not show it yet."""

    todo: Todo
    versions: frozenset[str]
    until: float


class NodeWork:
    """What is to be done about nodes, and what came of it.

    A newer plan takes the place of what was not begun yet. A node that was written to is left alone until our watch
    shows it, and one that could not be written for a while that grows.

    Args:
        services: what loops need.
        done: called whenever a node is through.

    Attributes:
        answers: what the API server said of nodes that were asked after, by node.
        tainted: NoExecute taints that were put on.
    """

    def __init__(self, services: Services, *, done: Callable[[], None]) -> None:
        self.answers: dict[str, Answer] = {}
        self.tainted = 0
        self._services = services
        self._done = done
        self._pending: deque[Todo] = deque()
        self._busy: dict[str, Todo] = {}
        self._given_up: list[Todo] = []
        self._failures: dict[str, int] = {}
        self._again: dict[str, float] = {}
        self._unseen: dict[str, _Unseen] = {}
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    # ── for the loop ────────────────────────────────────────────────────────────────────────────────────────────

    def take_back(self) -> list[Todo]:
        """Forget what was not begun; what of it, and of what failed since, the queues had given free."""
        left = [todo for todo in (*self._pending, *self._given_up) if todo.taken]
        self._pending.clear()
        self._given_up.clear()
        return left

    def under_way(self) -> list[Todo]:
        """What the queues gave free and nobody knows the end of yet."""
        return [todo for todo in (*self._busy.values(), *self._pending) if todo.taken]

    def look(self, *, now: float, age: float) -> None:
        """Forget what is over: writes that our watch has shown, old answers, nodes that are gone.

        Args:
            now: seconds since the epoch.
            age: seconds for which an answer counts.
        """
        nodes, present = self._services.picture.nodes, self._services.clock.monotonic()
        self._unseen = {
            name: each
            for name, each in self._unseen.items()
            if (node := nodes.get(name)) is not None
            and node.uid == each.todo.node.uid
            and node.resource_version in each.versions
            and present < each.until
        }
        self.answers = {name: each for name, each in self.answers.items() if name in nodes and now - each.at <= age}
        self._again = {name: at for name, at in self._again.items() if at > present and name in nodes}

    def resting(self) -> frozenset[str]:
        """Nodes that hold up nobody in a queue: a NoExecute taint is on its way, or fails again and again."""
        on_its_way = [name for name, todo in self._busy.items() if todo.executes]
        on_its_way += [name for name, each in self._unseen.items() if each.todo.executes]
        return frozenset((*on_its_way, *(name for name in self._again if self._failures.get(name, 0) >= MANY)))

    def put(self, todos: Mapping[str, Todo]) -> list[Todo]:
        """Have these done, the first first; what the queues gave free and is not begun now is returned."""
        left = []
        self._failures = {name: many for name, many in self._failures.items() if name in todos or name in self._again}
        for name, todo in todos.items():
            if name not in self._busy and name not in self._unseen and name not in self._again:
                self._pending.append(todo)
            elif todo.taken:
                left.append(todo)
        if self._pending:
            self._more.set()
        return left

    def next_try(self) -> float | None:
        """When the next node that failed is to be tried again, by the monotonic clock; ``None`` for never."""
        return min(self._again.values(), default=None)

    async def settled(self, seconds: float) -> bool:
        """Begin nothing more and wait for what was begun; whether that has come to its end in time."""
        self._pending.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    # ── workers ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            while not self._pending:
                self._more.clear()
                await self._more.wait()
            todo = self._pending.popleft()
            name = todo.node.name
            self._busy[name] = todo
            self._idle.clear()
            try:
                await self._do(todo)
            except Exception:
                log.exception("node %s could not be seen to", name)
                self._failed(todo, Written(Outcome.FAILED, certain=False))
            finally:
                del self._busy[name]
                if not self._busy:
                    self._idle.set()
                self._done()

    async def _do(self, todo: Todo) -> None:
        if self._services.stale() is not None:
            self._give_up(todo)
            return
        if todo.ask is not None and not await self._ask(todo):
            self._give_up(todo)
            return
        versions = [todo.node.resource_version]
        failure = await self._mark(todo, versions) or await self._taint(todo, versions)
        if failure is not None:
            self._failed(todo, failure)
        else:
            self._failures.pop(todo.node.name, None)
            self._again.pop(todo.node.name, None)
        old = frozenset(versions) - {versions[-1]}
        if old:
            self._wait_for_watch(todo, old)

    def _gone(self, todo: Todo) -> None:
        """There is no such node any more, and our watch is about to say so."""
        self._wait_for_watch(todo, frozenset((todo.node.resource_version,)))

    def _wait_for_watch(self, todo: Todo, versions: frozenset[str]) -> None:
        self._unseen[todo.node.name] = _Unseen(todo, versions, self._services.clock.monotonic() + SEEN)

    async def _ask(self, todo: Todo) -> bool:
        name = todo.node.name
        try:
            answer = await ask(self._services.api, name, now=self._services.clock.now())
        except (ApiError, Unreachable, InputError) as error:
            self._later(name, Outcome.FAILED)
            log.warning("node %s is silent, and asking the API server failed: %s", name, error)
            return False
        if answer is None:
            self._gone(todo)
            return False
        self.answers[name] = answer
        return True

    async def _mark(self, todo: Todo, versions: list[str]) -> Written | None:
        """What went wrong, if anything did; ``versions`` grows by what was written."""
        if todo.mark is None:
            return None
        written = await write_mark(self._services.api, todo.mark)
        if written.outcome is not Outcome.WRITTEN:
            return replace(written, certain=True)  # no taint was sent
        versions.append(written.version)
        note = f"conditions are Unknown now: {todo.mark.message}"
        log.info("node %s: %s", todo.node.name, note)
        self._tell(todo, todo.mark.reason, note)
        return None

    async def _taint(self, todo: Todo, versions: list[str]) -> Written | None:
        """The same for taints."""
        if todo.patch is None:
            return None
        written = await write_taints(self._services.api, todo.patch)
        if written.outcome is not Outcome.WRITTEN:
            return written
        versions.append(written.version)
        for change in todo.patch.changes:
            self.tainted += change.add and change.taint.effect == NO_EXECUTE
            self._services.teller.taint_changed(change, uid=todo.node.uid)
            _log(change)
        return None

    def _failed(self, todo: Todo, written: Written) -> None:
        name = todo.node.name
        if written.certain:
            self._give_up(todo)
        if written.outcome is Outcome.GONE:
            self._gone(todo)
            return
        failures = self._later(name, written.outcome)
        if written.outcome is Outcome.FAILED or failures >= MANY:
            log.warning("node %s not written: %s", name, written.error)
        if failures == MANY:
            self._tell(todo, reasons.NODE_NOT_WRITTEN, f"not written, and tried again: {written.error}")

    def _give_up(self, todo: Todo) -> None:
        if todo.taken:
            self._given_up.append(todo)

    def _later(self, name: str, outcome: Outcome) -> int:
        """Leave a node alone for a while; how often in a row it has failed."""
        failures = self._failures.get(name, 0)
        wait = look_again(outcome, failures, jitter=random.random())
        if wait is None:
            return failures
        self._failures[name] = failures + 1
        wait = max(wait, min(LONGEST, len(self._again) / CROWD))
        self._again[name] = self._services.clock.monotonic() + wait
        return failures + 1

    def _tell(self, todo: Todo, reason: str, note: str) -> None:
        self._services.teller.node(todo.node.name, uid=todo.node.uid, reason=reason, note=note, warning=True)


def _log(change: TaintChange) -> None:
    """One line, with what a search needs as fields of its own."""
    taint = f"{change.taint.key}:{change.taint.effect}"
    fields = {"node": change.node, "taint": taint, "reason": change.reason, "detail": change.message}
    log.info("node %s %s %s", change.node, "tainted with" if change.add else "freed of", taint, extra=fields)
