"""Nodes with pods that use resources, for tests of the pure parts of the node-pressure controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.api.node_pressure_policy import NodePressurePolicySpec
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import Node, OwnerReference, Pod, PodSpec
from trimtab.kube.objects.node import NodeCondition
from trimtab.kube.rules.quantity import amount
from trimtab.pressure.measurement import MemoryStallTimes, NodeMeasurement, PodUsage, SignalValue
from trimtab.pressure.planner import NodePlan, NodePlanner, NodeView
from trimtab.pressure.state import NO_STATE, NodeState, decode_state, encode_state

START = 1_763_877_600.0
"""2025-11-23T06:00:00Z."""

MEMORY = "memory.available"
NODEFS = "nodefs.available"
IMAGEFS = "imagefs.available"
INODES = "nodefs.inodesFree"
PID = "pid.available"


def pod(name: str, *, requests: Mapping[str, str] | None = None, priority: int = 0, **more: Any) -> Pod:
    """Return a pod of namespace shop on node n1 that a ReplicaSet manages. ``spec`` has further fields of its spec."""
    spec = PodSpec(
        priority=priority,
        requests=FrozenMap({resource: amount(text) for resource, text in (requests or {}).items()}),
        **more.pop("spec", {}),
    )
    owners = (OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="web", controller=True),)
    fields = {"namespace": "shop", "uid": f"uid-{name}", "node": "n1", "phase": "Running", "owners": owners} | more
    return Pod(name=name, spec=spec, **fields)


def used(name: str, **values: str | int) -> PodUsage:
    """Return the usage of the pod of this name."""
    return PodUsage(uid=f"uid-{name}", **{key: amount(value) for key, value in values.items()})


def by_key(*usages: PodUsage) -> dict[str, PodUsage]:
    """Return the usages by the pod's key."""
    return {f"shop/{usage.uid.removeprefix('uid-')}": usage for usage in usages}


def measured(
    values: Mapping[str, str | tuple[str, str]],
    *,
    now: float,
    usage: Mapping[str, PodUsage] | None = None,
    at: float | None = None,
    timeless: bool = False,
    **more: Any,
) -> NodeMeasurement:
    """Return a measurement of node n1: available amounts, or pairs with the capacity, by signal."""
    signals = {}
    for signal, text in values.items():
        available, capacity = text if isinstance(text, tuple) else (text, "16Gi")
        time = None if timeless else now if at is None else at
        signals[signal] = SignalValue(amount(available), amount(capacity), time)
    fields = {"node": "n1", "source": "Summary", "read_at": now, "pods": lambda: usage or {}} | more
    return NodeMeasurement(signals=signals, **fields)


def stalled(percent: float) -> MemoryStallTimes:
    """Return PSI with the same value for all averages."""
    return MemoryStallTimes(percent, percent, percent)


def node(*conditions: str) -> Node:
    """Return node n1. The given conditions are True."""
    return Node(name="n1", conditions=tuple(NodeCondition(type=each, status="True") for each in conditions))


class NodeRun:
    """Plans for one node again and again, as the controller does, and keeps the state between the plans.

    Attributes:
        state: the node's state.
        evicted: the names of the pods whose eviction was planned, with their grace periods.
        now: the time.
    """

    def __init__(self, spec: NodePressurePolicySpec, *pods: Pod, usage: Mapping[str, PodUsage] | None = None) -> None:
        self.planner = NodePlanner(spec)
        self.pods: list[Pod] = list(pods)
        self.usage = dict(usage or {})
        self.node = node()
        self.state: NodeState = NO_STATE
        self.history: list[NodeMeasurement] = []
        self.evicted: list[tuple[str, int]] = []
        self.evicting: Pod | None = None
        self.now = START
        self.dedicated_image_fs = False

    def restart(self) -> None:
        """Forget everything but the annotation of the node."""
        self.state = decode_state(encode_state(self.state))
        self.history = []
        self.evicting = None

    def read(self, values: Mapping[str, str | tuple[str, str]], *, after: float = 10.0, **more: Any) -> NodePlan:
        """Plan with a new measurement after some seconds."""
        self.now += after
        more = {"dedicated_image_fs": self.dedicated_image_fs} | more
        reading = measured(values, now=self.now, usage=self.usage, **more)
        self.history.append(reading)
        return self._plan(reading)

    def hold(self, values: Mapping[str, str | tuple[str, str]], seconds: float, *, every: float = 10.0) -> NodePlan:
        """Plan with the same values in each interval for some seconds, and return the last plan."""
        plan = self.read(values, after=every)
        for _ in range(round(seconds / every) - 1):
            plan = self.read(values, after=every)
        return plan

    def unread(self, *, after: float = 10.0) -> NodePlan:
        """Plan without a measurement after some seconds."""
        self.now += after
        return self._plan(None)

    def remove(self, *names: str) -> None:
        """Remove pods from the API and from the stats."""
        self.pods = [each for each in self.pods if each.name not in names]
        for name in names:
            self.usage.pop(f"shop/{name}", None)

    def _plan(self, reading: NodeMeasurement | None) -> NodePlan:
        view = NodeView(
            node=self.node,
            pods=tuple(self.pods),
            reading=reading,
            history=tuple(self.history),
            state=self.state,
            evicting=self.evicting,
        )
        plan = self.planner.plan(view, now=self.now)
        self.state = plan.state
        if plan.evict is not None:
            self.evicted.append((plan.evict.pod.name, plan.evict.grace_period))
        return plan


def names(pods: Sequence[Any]) -> list[str]:
    """Return the names of ranked, kept or planned pods."""
    return [each.pod.name for each in pods]
