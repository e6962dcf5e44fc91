"""What a remedy is, and the picture on which it is tried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from trimtab.cluster.resources import IntArray
from trimtab.kube.objects import KubeObject, Node, Pod
from trimtab.placement.framework import Filter
from trimtab.placement.placer import Placer
from trimtab.placement.remedies.leaving import leaving_of

R = TypeVar("R", bound="HasReason")
Costs = npt.NDArray[np.float64]
NEVER = np.inf
"""The cost of what cannot be done."""


class Step(Struct, frozen=True, gc=False):
    """One change of one object, with its price.

    Attributes:
        reason: a code in CamelCase, stable API.
        change: what to do, as a person would be told, without a full stop.
        cost: see :mod:`trimtab.placement.remedies.costs`.
        kind: of the object to change.
        name: of the object, with its namespace where it has one.
        field: what of it changes.
        before: the field's value now, as JSON.
        after: its value then.
        details: more for programs: pods that go, amounts.
        puts: objects as they would be.
        removes: objects that would be gone.
        pod: the pod under question as it would be, ``None`` where it stays as it is.
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
        """The step as JSON."""
        found: dict[str, Any] = {"reason": self.reason, "change": self.change, "kind": self.kind, "name": self.name}
        if self.field:
            found |= {"field": self.field, "from": self.before, "to": self.after}
        return found | self.details


class Case:
    """A pod that fits nowhere, on a picture that steps change and that is what it was once they are undone.

    Attributes:
        placer: judges; its snapshot must be within a mark.
        pod: as it is under the steps taken, with no node.
        origin: the pod as it is in the cluster.
        without: the reasons of remedies that are not to be used.
        limit: steps that cost as much are of no use: what is laborious need not be done for them.
    """

    def __init__(self, placer: Placer, pod: Pod) -> None:
        self.placer = placer
        self.without: frozenset[str] = frozenset()
        self.limit = NEVER
        self.snapshot = placer.snapshot
        self.pod = pod
        self.origin = pod

    @contextmanager
    def after(self, *steps: Step) -> Iterator[None]:
        """The picture as it would be with the steps taken."""
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
        """The first rule that keeps the pod from a node, ``None`` where it fits."""
        refused = self.placer.refusing(self.pod)
        return refused[0] if refused is not None else self.placer.obstacle(self.pod, self.snapshot.nodes.slot_of[name])

    def passes(self, rule: str, pod: Pod, name: str) -> bool:
        """Whether a node passes the filters of that name for a pod, which need not be the one under question."""
        slot = self.snapshot.nodes.slot_of[name]
        masks = (each.passing(pod) for each in self.placer.filters if each.name == rule)
        return all(mask is None or bool(mask[slot]) for mask in masks)

    def allowed(self, remedies: Iterable[R]) -> list[R]:
        """The remedies but those that are not to be used."""
        return [remedy for remedy in remedies if remedy.reason not in self.without]

    @cached_property
    def leaving(self) -> dict[int, tuple[str, ...]]:
        """The pods that were being deleted when this was first asked, by the slot of their node."""
        return dict(leaving_of(self.snapshot))

    @cached_property
    def rank(self) -> IntArray:
        """The order of nodes' names when this was first asked, by slot: nodes that steps add are not in it."""
        return self.snapshot.nodes.rank()

    @property
    def template(self) -> str:
        """The pod, and where its fields are changed: in its owner's template, or in itself."""
        owner = self.origin.controller
        pod = f"pod {self.origin.key}"
        return pod if owner is None else f"{pod} (template of {owner.kind} {owner.name})"

    def on_pod(
        self, reason: str, change: str, cost: float, *, field: str, before: Any, after: Any, **spec: Any
    ) -> Step:
        """A step that changes the pod's own spec.

        Args:
            reason: see :class:`Step`.
            change: the same.
            cost: the same.
            field: the same.
            before: the same.
            after: the same.
            spec: the fields of the spec that change.
        """
        changed = replace(self.pod, spec=replace(self.pod.spec, **spec))
        return Step(reason, change, cost, "Pod", self.origin.key, field, before, after, pod=changed)


class HasReason(Protocol):
    """What all kinds of remedies have: the code that their steps give."""

    reason: ClassVar[str]


class Remedy(HasReason, Protocol):
    """A kind of change that makes one node take the pod; made once, as it keeps nothing."""

    rules: ClassVar[frozenset[str]]
    """The names of the filters that it can satisfy."""

    evicts: ClassVar[bool]
    """Whether pods go, which may satisfy several rules at once."""

    def bound(self, case: Case, rule: str) -> Costs | float:
        """What it costs at least to satisfy one of :attr:`rules` on each node, :data:`NEVER` where it cannot.

        Cheap and computed on columns: it decides which of thousands of nodes are tried at all.

        Returns:
            float64, shape (capacity,), or one number for all.
        """
        ...

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """Changes that may satisfy ``rule`` on the node, to be tried."""
        ...


class Lifting(HasReason, Protocol):
    """A kind of change for a pod that is refused whatever the nodes are like."""

    rules: ClassVar[frozenset[str]]
    """The names of the filters whose refusal it can lift."""

    def lifting(self, case: Case) -> Iterator[Step]:
        """Changes that may lift the refusal, to be tried."""
        ...


class Addition(HasReason, Protocol):
    """A kind of change that adds a node."""

    least: ClassVar[float]
    """What it costs at least."""

    def steps(self, case: Case) -> Iterator[Step]:
        """New nodes that may take the pod, the cheapest first; each step's name is the new node's."""
        ...
