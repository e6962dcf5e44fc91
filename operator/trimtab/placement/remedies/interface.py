"""The interface of remedies, and the unschedulable pod and snapshot for which they are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from trimtab.cluster.resources import IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import KubeObject, Node, Pod
from trimtab.placement.interface import Filter
from trimtab.placement.placer import Placer


class TerminatingPods:
    """Caches the terminating pods by node. Only nodes whose pods changed are read again.

    Attributes:
        on: the keys (``namespace/name``) of the terminating pods by slot. Slots without terminating pods are omitted.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.on: dict[int, tuple[str, ...]] = {}
        self._seen = -1
        self.refresh(snapshot)

    def refresh(self, snapshot: Snapshot) -> None:
        """Update the cache from the snapshot, using the node table's log of changes."""
        nodes = snapshot.nodes
        touched = nodes.touched_since(self._seen)
        if touched is not None:
            slots = set(touched)
        else:  # the log was truncated: scan all pods
            self.on.clear()
            leaving = [pod for pod in snapshot.pods.values() if pod.deleted is not None]
            slots = {slot for pod in leaving if (slot := snapshot.slot(pod)) is not None}
        for slot in slots:
            self._read(snapshot, slot)
        self._seen = nodes.changes

    def _read(self, snapshot: Snapshot, slot: int) -> None:
        node = snapshot.nodes.at[slot]
        pods = [] if node is None else snapshot.pods_on(node.name)
        keys = tuple(pod.key for pod in pods if pod.deleted is not None and not pod.terminal)
        if keys:
            self.on[slot] = keys
        else:
            self.on.pop(slot, None)


_TERMINATING: Final[WeakKeyDictionary[Snapshot, TerminatingPods]] = WeakKeyDictionary()


def terminating_pods(snapshot: Snapshot) -> dict[int, tuple[str, ...]]:
    """Return the keys of the snapshot's terminating pods, by slot.

    The result is read-only, and valid until the snapshot changes.
    """
    found = _TERMINATING.get(snapshot)
    if found is None:
        found = _TERMINATING[snapshot] = TerminatingPods(snapshot)
    else:
        found.refresh(snapshot)
    return found.on


R = TypeVar("R", bound="HasReason")
Costs = npt.NDArray[np.float64]
IMPOSSIBLE = np.inf
"""The cost of a change that is impossible."""


class Step(Struct, frozen=True, gc=False):
    """One change of one object, with its cost.

    Attributes:
        reason: the reason code in CamelCase, part of the stable API.
        change: a sentence that describes the change, without a full stop.
        cost: the cost of the change (:mod:`trimtab.placement.remedies.costs`).
        kind: the kind of the object to change.
        name: the object's name, with its namespace if it has one.
        field: the field to change.
        before: the current value of the field, as JSON.
        after: the new value of the field, as JSON.
        details: further machine-readable output, for example evicted pods or amounts.
        puts: the objects to add to the snapshot or to replace in it.
        removes: the objects to remove from the snapshot.
        pod: the changed unschedulable pod, or ``None`` if it is unchanged.
    """

    reason: str
    change: str
    cost: float
    kind: str
    name: str
    field: str = ""
    before: Any = None
    after: Any = None
    details: dict[str, Any] = {}
    puts: tuple[KubeObject, ...] = ()
    removes: tuple[KubeObject, ...] = ()
    pod: Pod | None = None

    def document(self) -> dict[str, Any]:
        """Return the step as a JSON document."""
        found: dict[str, Any] = {"reason": self.reason, "change": self.change, "kind": self.kind, "name": self.name}
        if self.field:
            found |= {"field": self.field, "from": self.before, "to": self.after}
        return found | self.details


Protection = Callable[[Pod], str | None]


def unprotected(pod: Pod) -> str | None:
    """Return ``None``: no pod is protected from eviction."""
    del pod
    return None


class RemedyCase:
    """An unschedulable pod, and the snapshot on which steps are tried and undone.

    Attributes:
        placer: evaluates the pod. Its snapshot must be within a fork.
        pod: the pod after the steps applied so far, without a node.
        origin: the pod as it is in the cluster.
        without: the reasons of remedies that must not be used.
        limit: the cost of the best plan so far. Steps that cost this much or more are useless, so remedies may skip
            expensive work for them.
        protection: returns why a pod cannot be evicted now, or ``None`` if it can.
    """

    def __init__(self, placer: Placer, pod: Pod, protection: Protection = unprotected) -> None:
        self.placer = placer
        self.protection = protection
        self.without: frozenset[str] = frozenset()
        self.limit = IMPOSSIBLE
        self.snapshot = placer.snapshot
        self.pod = pod
        self.origin = pod

    @contextmanager
    def after(self, *steps: Step) -> Iterator[None]:
        """Apply steps to the snapshot, and undo them on exit."""
        before = self.pod
        with self.snapshot.fork():
            for step in steps:
                for gone in step.removes:
                    self.snapshot.remove(gone)
                for there in step.puts:
                    self.snapshot.put(there)
                if step.pod is not None:
                    self.pod = step.pod
            try:
                yield
            finally:
                self.pod = before

    def obstacle(self, name: str) -> Filter | None:
        """Return the first filter that rejects the pod on a node, or ``None`` if the pod fits."""
        refused = self.placer.refusing_filter(self.pod)
        return (
            refused[0]
            if refused is not None
            else self.placer.first_failing_filter(self.pod, self.snapshot.nodes.slot_of[name])
        )

    def passes(self, rule: str, pod: Pod, name: str) -> bool:
        """Return whether a node passes the filter with this name for a pod."""
        slot = self.snapshot.nodes.slot_of[name]
        masks = (each.passing(pod) for each in self.placer.filters if each.name == rule)
        return all(mask is None or bool(mask[slot]) for mask in masks)

    def allowed(self, remedies: Iterable[R]) -> list[R]:
        """Return the remedies whose reasons are not in ``without``."""
        return [remedy for remedy in remedies if remedy.reason not in self.without]

    @cached_property
    def terminating(self) -> dict[int, tuple[str, ...]]:
        """Return the keys of the terminating pods by slot, as of the first access."""
        return dict(terminating_pods(self.snapshot))

    @cached_property
    def rank(self) -> IntArray:
        """Return the position of each slot in the order of node names, as of the first access.

        Nodes that were added by steps are not included.
        """
        return self.snapshot.nodes.rank()

    @property
    def template(self) -> str:
        """Return which pod or pod template must be changed, as text for messages.

        This is the template of the pod's owner, or the pod itself if it has no owner.
        """
        owner = self.origin.controller
        pod = f"pod {self.origin.key}"
        return pod if owner is None else f"{pod} (template of {owner.kind} {owner.name})"

    def pod_step(
        self, reason: str, change: str, cost: float, *, field: str, before: Any, after: Any, **spec: Any
    ) -> Step:
        """Return a step that changes the pod's own spec.

        Args:
            reason: see :class:`Step`.
            change: see :class:`Step`.
            cost: see :class:`Step`.
            field: see :class:`Step`.
            before: see :class:`Step`.
            after: see :class:`Step`.
            spec: the changed fields of the spec.
        """
        changed = replace(self.pod, spec=replace(self.pod.spec, **spec))
        return Step(reason, change, cost, "Pod", self.origin.key, field, before, after, pod=changed)


def node_step(node: Node, reason: str, change: str, cost: float, field: str, before: Any, after: Any) -> Step:
    """Return a step that changes one field of a node.

    Args:
        node: the changed node.
        reason: see :class:`Step`.
        change: see :class:`Step`.
        cost: see :class:`Step`.
        field: see :class:`Step`.
        before: see :class:`Step`.
        after: see :class:`Step`.
    """
    return Step(reason, change, cost, "Node", node.name, field, before, after, puts=(node,))


class HasReason(Protocol):
    """Base class of all kinds of remedies. ``reason`` is the reason code of their steps."""

    reason: ClassVar[str]


class Remedy(HasReason, Protocol):
    """A kind of change that makes a node feasible. Remedies have no state."""

    rules: ClassVar[frozenset[str]]
    """The names of the filters that the remedy can satisfy."""

    evicts: ClassVar[bool] = False
    """Whether the remedy evicts pods, which may satisfy several filters at once."""

    def bound(self, case: RemedyCase, rule: str) -> Costs | float: ...

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]: ...


class RefusalRemedy(HasReason, Protocol):
    """A kind of change for a pod that is rejected regardless of the nodes."""

    rules: ClassVar[frozenset[str]]
    """The names of the filters whose rejection the remedy can resolve."""

    def steps_to_admit(self, case: RemedyCase) -> Iterator[Step]: ...


class NodeAddition(HasReason, Protocol):
    """A kind of change that adds a node."""

    least: ClassVar[float]
    """The minimum cost of a step of this remedy."""

    def steps(self, case: RemedyCase) -> Iterator[Step]: ...
