"""The controller of MachineAutoscalers: their limits on their targets, and in their status what came of it.

It has no loop that asks: events of MachineAutoscalers and changes of what the watches show put keys into a queue, and
each is looked at as it is then. What was decided before is not remembered; a process that is killed anywhere is gone
on from by the next. It works without a ClusterAutoscaler: limits are there when one comes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.conditions import READY, find_condition
from trimtab.api.machine_autoscaler import MachineAutoscalerStatus
from trimtab.autoscaling.groups.keys import OWNER
from trimtab.autoscaling.machine_autoscalers.annotations import is_limit, released, told, wanted
from trimtab.autoscaling.machine_autoscalers.capacity import Changes
from trimtab.autoscaling.machine_autoscalers.contest import Contest
from trimtab.autoscaling.machine_autoscalers.decision import Decision, decide
from trimtab.autoscaling.machine_autoscalers.registry import Entry, MachineAutoscalers
from trimtab.autoscaling.machine_autoscalers.status import is_urgent, next_status, told_anew
from trimtab.autoscaling.machine_autoscalers.targets import TargetKey, Targets, mirrors_of
from trimtab.autoscaling.machine_autoscalers.telling import Telling
from trimtab.autoscaling.machine_autoscalers.writing import NotLeading, Outdated, Writing
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, ServerError, TooManyRequests, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.objects import AnyMachineSet, KubeObject
from trimtab.kube.resources import MACHINE_AUTOSCALERS
from trimtab.kube.retry import Backoff
from trimtab.kube.work_queue import WorkQueue

log = logging.getLogger(__name__)

WORKERS: Final = 8
"""MachineAutoscalers at once: one whose target's API hangs keeps no other one waiting."""

RETRY: Final = Backoff(initial=0.5, maximum=60.0)
"""After what the API server refused or did not answer."""

LOOK_AGAIN: Final = 1.0
"""Seconds until a key is looked at again whose turn came without a picture to decide on."""

SIZES_SETTLE: Final = 10.0
"""Seconds that another size of a target waits to be told: a set that grows by one node at a time is told once."""

LIST_EVERY: Final = 300.0
"""Seconds between two lists of all: what went unheard between two watches, because somebody took our finalizer away,
would stay for ever."""

LONGEST_STOP: Final = 12.0
"""Seconds that requests get to end when the process does."""


class Told(Struct, frozen=True):
    """What was last written of one.

    Attributes:
        uid: its UID.
        status: its status.
        at: when that was, by the monotonic clock.
    """

    uid: str
    status: MachineAutoscalerStatus
    at: float


class MachineAutoscalerController:
    """One for a process.

    Attributes:
        autoscalers: all that there are, for the autoscaler's passes.
        synced: whether all have been read once.
    """

    def __init__(
        self,
        *,
        api: Api,
        recorder: Recorder,
        leading: Callable[[], bool],
        stale: Callable[[], str | None],
        changed: Callable[[], None] = lambda: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Prepare; nothing is asked before :meth:`start`.

        Args:
            api: the API server.
            recorder: posts events.
            leading: whether this process may still act; asked before each request.
            stale: what keeps the picture of the targets from being decided on, ``None`` where nothing does.
            changed: called when :attr:`autoscalers` say something else than before: a pass is due.
            clock: tells and waits.
        """
        self.autoscalers = MachineAutoscalers(changed)
        self.synced = False
        self._api = api
        self._leading = leading
        self._stale = stale
        self._clock = clock
        self._targets = Targets()
        self._writing = Writing(api, leading=leading, autoscalers=self.autoscalers, targets=self._targets)
        self._telling = Telling(recorder)
        self._contest = Contest(clock)
        self._queue = WorkQueue(self._reconcile, workers=WORKERS, clock=clock, retry=RETRY)
        self._told: dict[str, Told] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def observe(self, body: Mapping[str, Any], *, gone: bool = False) -> None:
        """Take in an event of a MachineAutoscaler."""
        key = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
        before = self.autoscalers.get(key)
        if gone:
            self.autoscalers.forget(key, uid=str(body["metadata"].get("uid", "")))
        else:
            self.autoscalers.observe(body)
        self._wake(key, before)

    def target_changed(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Take in a change of what can be a target: a listener of stores (:data:`.targets.KINDS`).

        It must be told of everything from the start, and may be told of other kinds too.
        """
        source = new if isinstance(new, AnyMachineSet) else old
        if not isinstance(source, AnyMachineSet) or not self._targets.observe(old, new):
            return
        for each in (old, new):
            owner = each.annotations.get(OWNER) if isinstance(each, AnyMachineSet) else None
            if owner:
                self._queue.add(owner)
        for key in (TargetKey.of(source), *mirrors_of(source)):
            for autoscaler in self.autoscalers.wanting(key):
                self._queue.add(autoscaler.key)

    def start(self) -> None:
        """Start working."""
        self._tasks = [
            asyncio.create_task(self._queue.run(), name="machine autoscalers"),
            asyncio.create_task(self._list_often(), name="list machine autoscalers"),
        ]

    async def stop(self) -> None:
        """End: requests that are under way are waited for, nothing new is begun."""
        if not self._tasks:
            return
        await self._queue.drain(LONGEST_STOP)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _list_often(self) -> None:
        retry = 0
        while True:
            try:
                if self._leading():
                    await self._list()
                    retry = 0
                await self._clock.sleep(LIST_EVERY if self.synced else LOOK_AGAIN)
            except (ApiError, Unreachable) as error:
                log.warning("MachineAutoscalers cannot be listed: %s", error)
            except Exception:  # without a first list no pass would ever be made
                log.exception("MachineAutoscalers cannot be listed")
            else:
                continue
            await self._clock.sleep(RETRY.delay(retry))
            retry += 1

    async def _list(self) -> None:
        """Read all, and look at each; also at those that targets name and that are not there any more."""
        listed = await verbs.list_objects(self._api, MACHINE_AUTOSCALERS)
        before = {key: self.autoscalers.get(key) for key in self.autoscalers}
        self.autoscalers.replace(listed.items, resource_version=listed.resource_version)
        self.synced = True
        for key in {*before, *self.autoscalers, *self._targets.owners()}:
            self._wake(key, before.get(key))

    def _wake(self, key: str, before: Entry | None) -> None:
        """Look at one, and at those that want what it wants or wanted: it may have let them in."""
        self._queue.add(key)
        now = self.autoscalers.get(key)
        claims = {entry.claim for entry in (before, now) if entry is not None}
        if len(claims) > 1 or before is None or now is None:
            for claim in claims - {None}:
                assert claim is not None
                for autoscaler in self.autoscalers.wanting(claim):
                    self._queue.add(autoscaler.key)

    async def _reconcile(self, key: str) -> float | None:
        if not self.synced or self._stale() is not None or not self._leading():
            return LOOK_AGAIN
        entry = self.autoscalers.get(key)
        try:
            if entry is None:
                await self._release(key, None, self._targets.owned_by(key))
                self._told.pop(key, None)
                self._contest.forget(key)
                return None
            return await self._look_at(self._as_told(entry))
        except Outdated as outdated:
            log.info("MachineAutoscaler %s: %s", key, outdated)
            return 0.0
        except NotLeading:
            return LOOK_AGAIN

    async def _look_at(self, entry: Entry) -> float | None:
        """Do what is to be done about one; what the server refuses is told in its status, and tried again."""
        try:
            return await (self._delete(entry) if entry.deleting else self._carry_out(entry))
        except (TooManyRequests, ServerError, Unreachable):
            raise
        except ApiError as error:
            message = f"{error.message or type(error).__name__} ({error.status})"
            await self._tell(entry, Decision(False, reasons.LIMITS_NOT_SET, message))
            raise

    async def _delete(self, entry: Entry) -> None:
        """Take everything of ours from its targets, then let it go.

        The picture may be older than what an earlier process wrote, so those that it names are read themselves.
        """
        named = {entry.last_target}
        if entry.autoscaler is not None:
            reference = entry.autoscaler.spec.scale_target_ref
            named.add(TargetKey.of_reference(reference, entry.metadata.namespace))
        for key in named - {None}:
            assert key is not None
            await self._writing.look(key)
        await self._release(entry.key, entry, self._targets.owned_by(entry.key))
        await self._writing.let_go(entry)

    async def _carry_out(self, entry: Entry) -> float | None:
        decision = decide(entry, self.autoscalers, self._targets)
        target = decision.target
        changes: Changes = {}
        if target is not None and entry.autoscaler is not None:
            changes = wanted(target, entry.autoscaler, adopt=entry.is_openshifts)
        again = bool(changes) and _had(entry, decision)
        if again:
            pause = self._contest.pause(entry.key)
            if pause:
                return pause
        await self._release(entry.key, entry, decision.release)
        if target is not None:
            await self._writing.keep(entry)
            if changes:
                await self._writing.annotate(target, changes)
                if again:
                    self._contest.count(entry.key)
                self._telling.updated(entry, target, told(target, changes), put_back=again and is_limit(changes))
        return await self._tell(entry, decision)

    async def _release(self, key: str, entry: Entry | None, targets: tuple[AnyMachineSet, ...]) -> None:
        """Take the annotations that name one from targets."""
        for target in targets:
            changes = released(target, key)
            if changes:
                await self._writing.annotate(target, changes)
                if entry is not None:
                    self._telling.updated(entry, target, told(target, changes))

    async def _tell(self, entry: Entry, decision: Decision) -> float | None:
        """Write the status where it has changed; returns the seconds until that is due, if it is not yet."""
        now = self._clock.now()
        status = next_status(entry, decision, now=now)
        if status == entry.status:
            return None
        told = self._told.get(entry.key)
        since = SIZES_SETTLE if told is None else self._clock.monotonic() - told.at
        if not is_urgent(entry.status, status) and since < SIZES_SETTLE:
            return SIZES_SETTLE - since
        if not decision.ready and told_anew(entry.status, decision):
            self._telling.failed(entry, decision)
        await self._writing.tell(entry, status)
        self._told[entry.key] = Told(entry.metadata.uid, status, self._clock.monotonic())
        return None

    def _as_told(self, entry: Entry) -> Entry:
        """One with the status that was written, where the server did not keep it.

        OpenShift's definition knows ``lastTargetRef`` alone, so its server drops the rest. Else everything would be
        told anew each time.
        """
        told = self._told.get(entry.key)
        if told is None or told.uid != entry.metadata.uid or entry.status.conditions:
            return entry
        return replace(entry, status=told.status)


def _had(entry: Entry, decision: Decision) -> bool:
    """Whether a target had the limits already, so that whatever differs somebody else has changed."""
    ready, status = find_condition(entry.status.conditions, READY), entry.status
    assert decision.target is not None
    return (
        ready is not None
        and ready.status == "True"
        and status.observed_generation == entry.metadata.generation
        and entry.last_target == TargetKey.of(decision.target)
    )
