"""A small controller on trimtab's runtime: it reports pods that have been pending for too long.

    apiVersion: example.com/v1alpha1
    kind: PendingPodReport
    metadata: {name: default}
    spec: {after: 5m}

The planner is a pure function. The controller observes, plans, acts and reports. The runtime does everything else: it
starts an iteration when the spec changes, when a pod changes and when the next pod becomes overdue, retries failures,
writes the status only if it has changed, and ends when the object is deleted or the process stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import kopf
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trimtab.api.base import Spec, Status
from trimtab.api.conditions import READY, Condition, ConditionUpdate, set_conditions
from trimtab.api.scalars import parse_duration
from trimtab.cluster.lister import Lister
from trimtab.controller.kopf_handlers import register_loops
from trimtab.controller.loop import ControllerLoop
from trimtab.controller.status_writer import StatusWriter
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.errors import InputError
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.objects import Lease, Node, Pod
from trimtab.kube.resources import PODS, ObjectReference, Resource

REPORTS: Final = Resource("example.com", "v1alpha1", "pendingpodreports", "PendingPodReport", namespaced=False)
RETRY: Final = 5.0
"""Seconds until the next iteration after one that failed."""


class ReportSpec(Spec, frozen=True):
    """The spec: ``after`` is the time after which a pending pod is reported."""

    after: str


class ReportStatus(Status, frozen=True):
    """The status: ``overdue`` is the number of pods that have been pending for longer than ``spec.after``."""

    observed_generation: int = 0
    state: str = ""
    conditions: tuple[Condition, ...] = ()
    overdue: int = 0


class Plan(Struct, frozen=True):
    """The overdue pods, and the seconds until the next pod becomes overdue; ``None`` if none will."""

    overdue: tuple[Pod, ...]
    next_in: float | None


def plan(pods: Iterable[Pod], after: float, *, now: float) -> Plan:
    """Return the pods that have been pending for at least ``after`` seconds, in the order of their keys."""
    pending = [pod for pod in pods if not pod.node and not pod.terminal and pod.created is not None]
    left = {pod.key: after - (now - (pod.created or now)) for pod in pending}
    overdue = sorted((pod for pod in pending if left[pod.key] <= 0.0), key=lambda pod: pod.key)
    return Plan(tuple(overdue), min((each for each in left.values() if each > 0.0), default=None))


class PendingPodController(ControllerLoop[float]):
    """Reports overdue pods for one PendingPodReport. Its object is ``spec.after`` in seconds."""

    def __init__(self, name: str, *, api: Api, lister: Lister, recorder: Recorder, clock: Clock) -> None:
        super().__init__(f"PendingPodReport {name}", clock, rest=1.0)
        self._clock = clock
        self._lister = lister
        self._recorder = recorder
        self._reported: set[str] = set()
        self._writer = StatusWriter(api, clock, resource=REPORTS, name=name, empty=ReportStatus())
        self._unsubscribe = lister.subscribe(self)

    def _decode(self, body: Mapping[str, Any]) -> float:
        try:
            return parse_duration(msgspec.convert(body["spec"], ReportSpec).after)
        except (msgspec.ValidationError, ValueError) as error:
            raise InputError(str(error), object=f"PendingPodReport/{body['metadata']['name']}", field="spec") from None

    def _resume(self, status: Mapping[str, Any]) -> None:
        self._writer.resume(status)

    async def _reconcile(self, obj: float) -> float | None:
        # 1. Observe and plan.
        found = plan((pod for _, pod in self._lister.items()), obj, now=self._clock.now())
        # 2. Act: emit an event for each pod that has become overdue.
        for pod in found.overdue:
            if pod.uid not in self._reported:
                note = f"The pod has been pending for more than {obj:.0f}s"
                reference = ObjectReference.to(PODS, pod.name, namespace=pod.namespace, uid=pod.uid)
                self._recorder.event(reference, reason="PendingTooLong", action="Report", note=note, type="Warning")
        self._reported = {pod.uid for pod in found.overdue}
        # 3. Report.
        self._report(True, "PodsChecked", f"{len(found.overdue)} pods are overdue", overdue=len(found.overdue))
        # 4. Requeue for the time at which the next pod becomes overdue.
        return found.next_in

    async def _invalid(self, problem: InputError) -> float | None:
        self._report(False, "InvalidSpec", str(problem))
        return None

    async def _failed(self, error: Exception) -> float | None:
        self._report(False, "IterationFailed", f"{type(error).__name__}: {error}")
        return RETRY

    async def _finish(self) -> None:
        self._unsubscribe()
        await self._writer.stop()

    def _report(self, ready: bool, reason: str, message: str, **fields: Any) -> None:
        previous, update = self._writer.status, ConditionUpdate(READY, ready, reason, message)
        conditions = set_conditions(previous.conditions, [update], now=self._clock.now(), generation=self.generation)
        self._writer.put(replace(previous, observed_generation=self.generation, conditions=conditions, **fields))

    # --- the observer of the lister ---------------------------------------------------------------------------------

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Start an iteration, because a pod was created, bound or deleted."""
        del old, new
        self.wake()

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """Ignore nodes."""

    def lease_changed(self, old: Lease | None, new: Lease | None) -> None:
        """Ignore Leases."""


def register(registry: kopf.OperatorRegistry, *, api: Api, lister: Lister, recorder: Recorder, clock: Clock) -> None:
    """Register the controller with Kopf, which runs one loop for each PendingPodReport."""
    running: dict[str, PendingPodController] = {}

    def make(name: str) -> PendingPodController:
        return PendingPodController(name, api=api, lister=lister, recorder=recorder, clock=clock)

    register_loops(registry, REPORTS, make=make, running=running)
