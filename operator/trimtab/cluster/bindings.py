"""Which pods are bound to which node, and what they add up to there."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator
from typing import Final

from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.tally import Tally
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Pod

_NOBODY: Final[dict[str, Pod]] = {}


class Bindings:
    """Pods by the names of their nodes, whether or not there are such nodes, each counted where there is one.

    Those without a node are kept by the empty name: who looks for pending pods need not go through all.

    Args:
        nodes: the node slots.
        namespace_labels: labels of a namespace by name.

    Attributes:
        tally: what they add up to.
    """

    def __init__(self, nodes: NodeTable, namespace_labels: Callable[[str], Labels]) -> None:
        self.tally = Tally(nodes, self._placed, namespace_labels)
        self._slot_of = nodes.slot_of
        self._on: dict[str, dict[str, Pod]] = {}

    def pods(self, node: str) -> list[Pod]:
        """The pods bound to a node, by ``namespace/name``."""
        there = self._on.get(node, _NOBODY)
        return [there[key] for key in sorted(there)]

    def items(self, node: str) -> ItemsView[str, Pod]:
        """The same with their keys, in no particular order."""
        return self._on.get(node, _NOBODY).items()

    def add(self, key: str, pod: Pod) -> None:
        """Take a pod in."""
        self._on.setdefault(pod.node, {})[key] = pod
        slot = self._slot_of.get(pod.node)
        if slot is not None:
            self.tally.count(pod, slot, 1)

    def drop(self, key: str, pod: Pod) -> None:
        """Let a pod go that was taken in."""
        self._leave(key, pod)
        slot = self._slot_of.get(pod.node)
        if slot is not None:
            self.tally.count(pod, slot, -1)

    def replace(self, key: str, pod: Pod) -> None:
        """Have another value for a pod that counts as before (:func:`counts_alike`)."""
        self._on[pod.node][key] = pod

    def carry(self, key: str, old: Pod, new: Pod) -> tuple[int, int]:
        """Take a pod from its node to another, not counted yet (:meth:`Tally.count_move`), where :func:`only_moved`.

        Returns:
            The slots of the old and of the new node, -1 for none.
        """
        self._leave(key, old)
        if new.node in self._on:
            self._on[new.node][key] = new
        else:
            self._on[new.node] = {key: new}
        return self._slot_of.get(old.node, -1), self._slot_of.get(new.node, -1)

    def count_node(self, node: str, slot: int, amount: int) -> None:
        """Count all pods of a node in (``amount`` 1) that came, or out (-1) before it goes."""
        for _, pod in self.items(node):
            self.tally.count(pod, slot, amount)

    def _leave(self, key: str, pod: Pod) -> None:
        there = self._on[pod.node]
        del there[key]
        if not there:
            del self._on[pod.node]

    def _placed(self) -> Iterator[tuple[Pod, int]]:
        """The pods that count on a node that is there, with its slot."""
        for name, pods in self._on.items():
            slot = self._slot_of.get(name)
            if slot is not None:
                for pod in pods.values():
                    if not pod.terminal:
                        yield pod, slot


def counts_alike(old: Pod, new: Pod) -> bool:
    """Whether both count the same on the same node, so that no number changes."""
    return (
        old.node == new.node
        and old.spec is new.spec
        and old.labels is new.labels
        and old.uid == new.uid
        and old.terminal == new.terminal
        and (old.deleted is None) == (new.deleted is None)
    )


def only_moved(old: Pod, new: Pod) -> bool:
    """Whether both are the same pod and count the same, wherever they are."""
    return (
        old.spec is new.spec
        and old.labels is new.labels
        and old.owners is new.owners
        and old.phase == new.phase
        and old.uid == new.uid
        and old.deleted is new.deleted
    )
