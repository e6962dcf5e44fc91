"""The controller of MachineAutoscalers: writes their limits to their targets, and the result to their status.

Events of MachineAutoscalers and of their targets add keys to a work queue. Each reconcile relies only on the objects,
so if the process is killed at any point, the next process continues. The controller works without a ClusterAutoscaler,
so that the limits are already set when one is created.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.conditions import READY, find_condition
from trimtab.api.machine_autoscaler import MachineAutoscalerStatus
from trimtab.autoscaling.groups.annotations import OWNER
from trimtab.autoscaling.machine_autoscalers.annotations import (
    Changes,
    changes_limits,
    describe_changes,
    release_changes,
    target_changes,
)
from trimtab.autoscaling.machine_autoscalers.decision import Decision, decide
from trimtab.autoscaling.machine_autoscalers.registry import MachineAutoscalerRegistry, RegistryEntry
from trimtab.autoscaling.machine_autoscalers.status import (
    KEY,
    MachineAutoscalerEventReporter,
    is_new_reason,
    is_urgent,
    next_status,
)
from trimtab.autoscaling.machine_autoscalers.targets import TargetKey, Targets, mirrors_of
from trimtab.autoscaling.machine_autoscalers.writer import LeadershipLost, ObjectWriter, StaleObject
from trimtab.autoscaling.permissions import machine_autoscaler_permissions
from trimtab.controller.loop import Loop, TaskSupervisor
from trimtab.controller.metrics import WorkQueueMetrics
from trimtab.controller.permissions import permissions
from trimtab.controller.work_queue import WorkQueue
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, ServerError, TooManyRequests, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.objects import AnyMachineSet, KubeObject
from trimtab.kube.resources import MACHINE_AUTOSCALERS, Resource
from trimtab.kube.retry import Backoff
from trimtab.kube.token_bucket import SlidingWindow

log = logging.getLogger(__name__)

WORKERS: Final = 8
"""Number of MachineAutoscalers reconciled concurrently, so that a target whose API hangs does not delay the others."""

RETRY: Final = Backoff(initial=0.5, maximum=60.0)
"""Backoff after requests that the API server rejected or did not answer."""

NOT_READY_PERIOD: Final = 1.0
"""Seconds until a key is requeued if the caches were too stale to decide."""

SIZE_WRITE_PERIOD: Final = 10.0
"""Seconds between status writes for a new target size, so that gradual scaling causes few writes."""

RELIST_PERIOD: Final = 300.0
"""Seconds between relists. Watches may miss a deletion if trimtab's finalizer was removed manually."""

MAX_RESTORES: Final = (5, 60.0)
"""Maximum number of times that a target's annotations are restored, and the period in seconds.

Without this limit, another controller that sets other values could respond to each write with a write of its own. The
autoscaler uses the limits of the MachineAutoscaler regardless of the annotations, so waiting is harmless.
"""

STOP_TIMEOUT: Final = 12.0
"""Seconds that outstanding requests may take when the process stops."""


class WrittenStatus(Struct, frozen=True):
    """The status of a MachineAutoscaler that was last written.

    Attributes:
        uid: UID of the MachineAutoscaler.
        status: the status.
        at: the time of the write, on the monotonic clock.
    """

    uid: str
    status: MachineAutoscalerStatus
    at: float


class MachineAutoscalerController(Loop):
    """Reconciles all MachineAutoscalers; there is one controller per process.

    Attributes:
        autoscalers: the registry of MachineAutoscalers, for the iterations of the ClusterAutoscaler.
        synced: whether all MachineAutoscalers have been listed once.
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
        metrics: WorkQueueMetrics | None = None,
    ) -> None:
        """Initialize the controller. No request is sent before :meth:`start`.

        Args:
            api: the API server.
            recorder: posts events.
            leading: returns whether this process is the leader. It is checked before each request.
            stale: returns the reason why the caches of the targets are too stale to decide, or ``None``.
            changed: called when :attr:`autoscalers` has changed, to trigger an iteration of the ClusterAutoscaler.
            clock: the clock.
            metrics: the metrics of work queues; ``None`` to export nothing.
        """
        super().__init__("machine autoscalers", clock)
        self.autoscalers = MachineAutoscalerRegistry(changed)
        self.synced = False
        self._failures = 0
        self._api = api
        self._leading = leading
        self._stale = stale
        self._clock = clock
        self._targets = Targets()
        self._writer = ObjectWriter(api, leading=leading, autoscalers=self.autoscalers, targets=self._targets)
        self._events = MachineAutoscalerEventReporter(recorder)
        self._restores: dict[str, SlidingWindow] = {}
        self._queue = WorkQueue(
            self._reconcile,
            workers=WORKERS,
            clock=clock,
            retry=RETRY,
            metrics=(metrics or WorkQueueMetrics()).queue("machine-autoscalers"),
        )
        self._permissions = permissions()
        self._end_subscription = self._permissions.subscribe(self._permissions_changed)
        self._written: dict[str, WrittenStatus] = {}
        self._tasks = TaskSupervisor("machine autoscalers", clock)
        self._started = False

    def observe(self, body: Mapping[str, Any], *, deleted: bool = False) -> None:
        """Handle a watch event for a MachineAutoscaler.

        Args:
            body: the object.
            deleted: whether it was deleted.
        """
        key = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
        before = self.autoscalers.get(key)
        if deleted:
            self.autoscalers.remove(key, uid=str(body["metadata"].get("uid", "")))
        else:
            self.autoscalers.observe(body)
        self._enqueue(key, before)

    def target_changed(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Handle a change to a possible target, as a listener on the stores of :data:`.targets.KINDS`.

        It must be registered before the first object arrives. Objects of other kinds are ignored.
        """
        source = new if isinstance(new, AnyMachineSet) else old
        if not isinstance(source, AnyMachineSet) or not self._targets.observe(old, new):
            return
        for each in (old, new):
            owner = each.annotations.get(OWNER) if isinstance(each, AnyMachineSet) else None
            if owner:
                self._queue.add(owner)
        for key in (TargetKey.of(source), *mirrors_of(source)):
            for autoscaler in self.autoscalers.claiming(key):
                self._queue.add(autoscaler.key)

    def start(self) -> None:
        """Start the work queue and the relists."""
        self._tasks.start("queue", self._queue.run)
        self._tasks.start("lists", self._iterate_until_closed)
        self._started = True

    async def stop(self) -> None:
        """Start no new work, and wait for outstanding requests."""
        if not self._started:
            return
        self.close()
        self._end_subscription()
        self._permissions.release(KEY)
        await self._queue.drain(STOP_TIMEOUT)
        await self._tasks.cancel()
        self._started = False

    async def _iterate(self) -> float:
        """List all MachineAutoscalers, to detect deletions that watches missed."""
        try:
            if self._leading():
                await self._list()
        except (ApiError, Unreachable) as error:
            log.warning("Failed to list MachineAutoscalers; retrying: %s", error)
            return self._back_off()
        self._failures = 0
        return RELIST_PERIOD if self.synced else NOT_READY_PERIOD

    async def _failed(self, error: Exception) -> float:
        del error  # logged by the loop, which must retry: the autoscaler waits for the first list
        return self._back_off()

    def _back_off(self) -> float:
        self._failures += 1
        return RETRY.delay(self._failures - 1)

    async def _list(self) -> None:
        """List all MachineAutoscalers, and enqueue them and those that annotations of targets name."""
        listed = await verbs.list_objects(self._api, MACHINE_AUTOSCALERS)
        before = {key: self.autoscalers.get(key) for key in self.autoscalers}
        self.autoscalers.replace(listed.items, resource_version=listed.resource_version)
        self.synced = True
        for key in {*before, *self.autoscalers, *self._targets.owners()}:
            self._enqueue(key, before.get(key))

    def _enqueue(self, key: str, before: RegistryEntry | None) -> None:
        """Enqueue a MachineAutoscaler, and those that reference its old or new target and may own it now."""
        self._queue.add(key)
        self._permissions.require(KEY, machine_autoscaler_permissions(self._target_kinds()))
        now = self.autoscalers.get(key)
        claims = {entry.claim for entry in (before, now) if entry is not None}
        if len(claims) > 1 or before is None or now is None:
            for claim in claims - {None}:
                assert claim is not None
                for autoscaler in self.autoscalers.claiming(claim):
                    self._queue.add(autoscaler.key)

    def _target_kinds(self) -> set[Resource]:
        claims = (autoscaler.claim for autoscaler in map(self.autoscalers.get, self.autoscalers) if autoscaler)
        kinds = (None if claim is None else claim.resource() for claim in claims)
        return {kind for kind in kinds if kind is not None}

    def _permissions_changed(self) -> None:
        """Report the change in all statuses, and retry what the API server refused."""
        for key in self.autoscalers:
            self._queue.forget(key)
            self._queue.add(key)

    async def _reconcile(self, key: str) -> float | None:
        if not self.synced or self._stale() is not None or not self._leading():
            return NOT_READY_PERIOD
        entry = self.autoscalers.get(key)
        try:
            if entry is None:
                await self._release(key, None, self._targets.owned_by(key))
                self._written.pop(key, None)
                self._restores.pop(key, None)
                return None
            return await self._reconcile_entry(self._as_written(entry))
        except StaleObject as outdated:
            log.debug("Requeued MachineAutoscaler %s: %s", key, outdated)
            return 0.0
        except LeadershipLost:
            return NOT_READY_PERIOD

    async def _reconcile_entry(self, entry: RegistryEntry) -> float | None:
        """Reconcile one MachineAutoscaler. If the API server rejects a request, report this in the status and retry."""
        try:
            return await (self._delete(entry) if entry.deleting else self._apply(entry))
        except (TooManyRequests, ServerError, Unreachable):
            raise
        except ApiError as error:
            message = f"{error.message or type(error).__name__} ({error.status})"
            await self._write_status(entry, Decision(False, reasons.LIMITS_NOT_SET, message))
            raise

    async def _delete(self, entry: RegistryEntry) -> None:
        """Remove trimtab's annotations from the targets, then the finalizer.

        The cache may not contain what an earlier process wrote, so the targets that the object names are read from the
        API server.
        """
        named = {entry.last_target}
        if entry.autoscaler is not None:
            reference = entry.autoscaler.spec.scale_target_ref
            named.add(TargetKey.of_reference(reference, entry.metadata.namespace))
        for key in named - {None}:
            assert key is not None
            await self._writer.read_target(key)
        await self._release(entry.key, entry, self._targets.owned_by(entry.key))
        await self._writer.remove_finalizer(entry)

    async def _apply(self, entry: RegistryEntry) -> float | None:
        decision = decide(entry, self.autoscalers, self._targets)
        target = decision.target
        changes: Changes = {}
        if target is not None and entry.autoscaler is not None:
            changes = target_changes(target, entry.autoscaler, adopt=entry.managed_by_openshift)
        again = bool(changes) and _had_limits(entry, decision)
        if again:
            restores = self._restores.setdefault(entry.key, SlidingWindow(MAX_RESTORES))
            pause = restores.wait(self._clock.monotonic())
            if pause:
                return pause
        await self._release(entry.key, entry, decision.release)
        if target is not None:
            await self._writer.add_finalizer(entry)
            if changes:
                await self._writer.annotate(target, changes)
                if again:
                    restores.take(self._clock.monotonic())
                self._events.updated(
                    entry, target, describe_changes(target, changes), restored=again and changes_limits(changes)
                )
        return await self._write_status(entry, decision)

    async def _release(self, key: str, entry: RegistryEntry | None, targets: tuple[AnyMachineSet, ...]) -> None:
        """Remove the annotations of a MachineAutoscaler from former targets."""
        for target in targets:
            changes = release_changes(target, key)
            if changes:
                await self._writer.annotate(target, changes)
                if entry is not None:
                    self._events.updated(entry, target, describe_changes(target, changes))

    async def _write_status(self, entry: RegistryEntry, decision: Decision) -> float | None:
        """Write the status if it changed.

        Returns:
            The seconds to wait if the write is not due yet, else ``None``.
        """
        now = self._clock.now()
        status = next_status(entry, decision, now=now, registry=self._permissions)
        written = self._written.get(entry.key)
        if status == entry.status or (written is not None and _was_written(status, written.status, entry.status)):
            return None
        since = SIZE_WRITE_PERIOD if written is None else self._clock.monotonic() - written.at
        if not is_urgent(entry.status, status) and since < SIZE_WRITE_PERIOD:
            return SIZE_WRITE_PERIOD - since
        if not decision.ready and is_new_reason(entry.status, decision):
            self._events.failed(entry, decision)
        await self._writer.write_status(entry, status)
        self._written[entry.key] = WrittenStatus(entry.metadata.uid, status, self._clock.monotonic())
        return None

    def _as_written(self, entry: RegistryEntry) -> RegistryEntry:
        """Return the entry with the status that was last written, if the API server pruned it.

        OpenShift's CRD contains only ``lastTargetRef``. Otherwise each reconcile would write the status and emit an
        event again.
        """
        written = self._written.get(entry.key)
        if written is None or written.uid != entry.metadata.uid or entry.status.conditions:
            return entry
        return replace(entry, status=written.status)


def _had_limits(entry: RegistryEntry, decision: Decision) -> bool:
    """Return whether the target already had the limits, so that another client must have changed the annotations."""
    ready, status = find_condition(entry.status.conditions, READY), entry.status
    assert decision.target is not None
    return (
        ready is not None
        and ready.status == "True"
        and status.observed_generation == entry.metadata.generation
        and entry.last_target == TargetKey.of(decision.target)
    )


def _was_written(
    status: MachineAutoscalerStatus, written: MachineAutoscalerStatus, found: MachineAutoscalerStatus
) -> bool:
    """Return whether the status was written and only ``state`` is missing, because an older CRD does not contain it."""
    return status == written and replace(found, state=status.state) == status
