"""Growing: groups asked for more nodes, and set right, side by side; a slow one keeps neither others nor a pass.

One a process. A request that is not answered when a pass ends goes on beside the next ones, and its group is not asked
again meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.plan import ScaleUp
from trimtab.autoscaling.corrections import Correction
from trimtab.autoscaling.groups import Groups, NodeGroup
from trimtab.autoscaling.memory import State, answered, begun, lowered, provision_seconds
from trimtab.autoscaling.providers import Failure, Provider, Removal, Scaled, api_group_of, verify
from trimtab.autoscaling.report.pass_report import Grown
from trimtab.kube.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

SECONDS: Final = 45.0
"""Until a group's request counts as hanging: longer than a provider's own time for a group, which tells more."""

PATIENCE: Final = 2.0
"""Seconds that a pass waits for answers; most come in a few milliseconds, and belong to the pass that asked."""

UNSEEN: Final = 30.0
"""Seconds in which a picture may not show yet what was done to a group."""

AGAIN: Final = 60.0
"""Seconds after which a correction that failed is tried again."""


class Asking(Struct, frozen=True):
    """A group that was asked and has not answered.

    Attributes:
        before: its target.
        after: the target that it is asked for.
        since: when, in seconds since the epoch.
    """

    before: int
    after: int
    since: float


class Outcomes(Struct, frozen=True):
    """What has come of requests since the last time somebody asked.

    Attributes:
        grown: of groups that were asked for more, in the order of their ids.
        corrected: of targets that were set right, in the same order.
    """

    grown: tuple[Grown, ...] = ()
    corrected: tuple[Scaled, ...] = ()


class Growing:
    """Asks groups, each in a task of its own.

    Args:
        providers: who acts on groups, by what :func:`~trimtab.autoscaling.providers.api_group_of` says of them.
        clock: where the time comes from.
        seconds: until one request counts as hanging.
        wake: called when a group has answered, so that a pass that did not wait for it need not wait for the next one.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        clock: Clock = SYSTEM_CLOCK,
        *,
        seconds: float = SECONDS,
        wake: Callable[[], None] | None = None,
    ) -> None:
        self._providers = providers
        self._clock = clock
        self._seconds = seconds
        self._wake = wake
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._asking: dict[str, Asking] = {}
        self._grown: list[Grown] = []
        self._corrected: list[Scaled] = []
        self._doubtful: dict[str, Removal] = {}
        self._not_before: dict[str, float] = {}
        self._marking: dict[str, float] = {}
        self._begun: set[str] = set()

    @property
    def running(self) -> Mapping[str, Asking]:
        """Groups that were asked for more and have not answered, by their ids."""
        return dict(self._asking)

    @property
    def busy(self) -> frozenset[str]:
        """The ids of all groups about which something goes on: they are not begun anew."""
        return frozenset(self._tasks)

    @property
    def marking(self) -> frozenset[str]:
        """The ids of groups whose machines are being marked to go: their marks must not be taken for leftovers.

        Also of those that were a moment ago: a picture may show a mark before the size that was lowered for it.
        """
        now = self._clock.monotonic()
        self._marking = {id_: until for id_, until in self._marking.items() if id_ in self._tasks or now < until}
        return frozenset(self._marking)

    def begin(self, actions: Sequence[ScaleUp], groups: Groups) -> tuple[ScaleUp, ...]:
        """Ask groups for more; returns at once.

        Args:
            actions: what was planned; of a group about which something goes on still, nothing is begun.
            groups: as they were planned on.

        Returns:
            What was begun.
        """
        started = []
        for action in actions:
            group = groups.by_id.get(action.group)
            if group is None or group.id in self._tasks:
                continue
            self._asking[group.id] = Asking(group.target, action.to, self._clock.now())
            self._start(group.id, self._grow(group, action))
            started.append(action)
        return tuple(started)

    def correct(self, wanted: Sequence[Correction], groups: Groups) -> tuple[Correction, ...]:
        """Set targets right; returns at once.

        Args:
            wanted: what is to be done; a group about which something goes on, or whose last correction failed less than
                :data:`AGAIN` seconds ago, is left for later.
            groups: as they were found.

        Returns:
            What was begun.
        """
        self._clean(groups)
        now, started = self._clock.monotonic(), []
        for correction in wanted:
            group = groups.by_id.get(correction.group)
            if group is None or group.id in self._tasks or now < self._not_before.get(group.id, now):
                continue
            self._marking[group.id] = now
            self._start(group.id, self._correct(group, correction))
            started.append(correction)
        return tuple(started)

    async def settled(self, seconds: float = PATIENCE) -> None:
        """Wait until those have answered that were begun since this was last called, but at most so many seconds.

        Those that have not go on, and nobody waits for them again: each pass would take so much longer.
        """
        begun, self._begun = self._begun, set()
        if waited := [task for group, task in self._tasks.items() if group in begun]:
            await asyncio.wait(waited, timeout=seconds)

    async def grow(
        self, actions: Sequence[ScaleUp], groups: Groups, *, patience: float = PATIENCE
    ) -> tuple[Scaled, ...]:
        """Ask groups for more and wait a moment.

        Returns:
            What has come of these and of earlier requests; who has not answered is in :attr:`running`.
        """
        self.begin(actions, groups)
        await self.settled(patience)
        return tuple(each.scaled for each in self.take().grown)

    def take(self) -> Outcomes:
        """What has come of requests since the last call."""
        found = Outcomes(
            tuple(sorted(self._grown, key=lambda each: each.scaled.group)),
            tuple(sorted(self._corrected, key=lambda each: each.group)),
        )
        self._grown, self._corrected = [], []
        return found

    async def finish(self, seconds: float = 0.0) -> Outcomes:
        """Stop, at the end of the process: what is not answered is in doubt, and the next process finds out.

        Args:
            seconds: to wait for answers before that.

        Returns:
            What has come of requests since it was last taken.
        """
        tasks = list(self._tasks.values())
        if tasks and seconds:
            await asyncio.wait(tasks, timeout=seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return self.take()

    def _start(self, group: str, work: Any) -> None:
        task = asyncio.create_task(work, name=f"scale {group}")
        self._tasks[group] = task
        self._begun.add(group)
        task.add_done_callback(lambda done: self._done(group, done))

    def _done(self, group: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(group) is task:
            del self._tasks[group]
            if group in self._marking:
                self._marking[group] = self._clock.monotonic() + UNSEEN
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("group %s: %s", group, error, exc_info=error)
        if self._wake is not None:
            self._wake()

    async def _grow(self, group: NodeGroup, action: ScaleUp) -> None:
        at = self._clock.now()
        try:
            scaled = await self._ask(group, action.to, lambda provider: provider.increase(group, action.to))
            self._grown.append(Grown(action, scaled, at))
        finally:
            self._asking.pop(group.id, None)

    async def _correct(self, group: NodeGroup, correction: Correction) -> None:
        async def act(provider: Provider) -> Scaled:
            if correction.machines:
                return await provider.remove(group, correction.machines, now=self._clock.now())
            return await provider.lower(group, correction.to)

        scaled = await self._ask(group, correction.to, act)
        if isinstance(scaled, Removal) and scaled.mark and not scaled.done and (scaled.doubt or scaled.left_marked):
            self._doubtful[group.id] = scaled
        if not scaled.done and scaled.calls:
            self._not_before[group.id] = self._clock.monotonic() + AGAIN
        self._corrected.append(scaled)

    async def _ask(self, group: NodeGroup, to: int, act: Callable[[Provider], Awaitable[Scaled]]) -> Scaled:
        """What a provider says, or what happened instead."""
        name = api_group_of(group)
        provider = self._providers.get(name)
        if provider is None:
            message = f"nothing here acts on groups of {name or 'this kind'}"
            return Scaled(group.id, group.target, to, failure=Failure.REFUSED, message=message)
        try:
            async with asyncio.timeout(self._seconds):
                return await act(provider)
        except TimeoutError:
            failure, message = Failure.TIMED_OUT, f"no answer within {self._seconds:g} s"
        except Exception as error:  # one provider's mistake is no other group's affair
            log.exception("group %s: its provider failed in a way that is not foreseen", group.id)
            failure, message = Failure.UNREACHABLE, f"{type(error).__name__}: {error}"
        return Scaled(group.id, group.target, to, failure=failure, message=message, doubt=True, calls=1)

    def _clean(self, groups: Groups) -> None:
        """Take marks back from machines that were to go and stay: they would keep others from being removed."""
        for id_, removal in list(self._doubtful.items()):
            group = groups.by_id.get(id_)
            verdict = verify(removal, group)
            if group is None or not (verdict.spared or verdict.waiting):
                del self._doubtful[id_]
            elif verdict.settled and id_ not in self._tasks:
                self._start(id_, self._unmark(group, verdict.spared, removal.mark))

    async def _unmark(self, group: NodeGroup, machines: Sequence[str], mark: str) -> None:
        provider = self._providers.get(api_group_of(group))
        if provider is None:
            return
        async with asyncio.timeout(self._seconds):
            left = await provider.unmark(group, machines, mark=mark)
        if not left:
            self._doubtful.pop(group.id, None)


def noted(
    state: State,
    outcomes: Outcomes,
    running: Mapping[str, Asking],
    groups: Groups,
    spec: ClusterAutoscalerSpec,
    *,
    now: float,
) -> State:
    """The state with what was done: to be written down, so that a new process knows of it.

    Args:
        state: so far.
        outcomes: what has come of requests.
        running: groups that have not answered.
        groups: as they were planned on.
        spec: of the ClusterAutoscaler.
        now: seconds since the epoch.
    """
    provision = spec.provision_seconds

    def seconds(id_: str) -> float:
        group = groups.by_id.get(id_)
        return provision if group is None else provision_seconds(group, provision)

    for grown in outcomes.grown:
        state = answered(state, grown.scaled, now=now, seconds=seconds(grown.scaled.group))
    for corrected in outcomes.corrected:
        state = lowered(state, corrected)
    for id_, asking in running.items():
        state = begun(state, id_, asking.before, asking.after, now=asking.since, seconds=seconds(id_))
    return state
