"""Whole clusters, and the pods that are asked about in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Final

from tests.builders import PodBuilder, namespace, priority_class
from tests.differential.generator.chance import Chance
from tests.differential.generator.names import HIGH, NAMESPACES, RUNTIME, TEAMS
from tests.differential.generator.nodes import random_node
from tests.differential.generator.pods import add_feature, add_gate, random_pod, resize
from tests.differential.generator.spread import add_spread
from tests.differential.generator.storage import storage
from tests.differential.generator.theme import THEMES, Theme, random_theme
from tests.differential.generator.volumes import add_volumes, ephemeral_claims
from tests.differential.generator.workloads import own, workloads
from tests.differential.server import Manifest

SUBJECTS: Final = ("owners", "spread", "volumes", "features")
"""What can be left out of clusters and pods, for looking at one thing at a time."""


class RandomCluster:
    """A cluster of its own for each seed, as descriptions of its objects.

    Args:
        seed: what it follows from.
        without: those of :data:`SUBJECTS` that are left out.

    Attributes:
        theme: what it is about, one of :data:`~tests.differential.generator.theme.THEMES`.
        objects: all of it.
        nodes: the names of the nodes.
    """

    def __init__(self, seed: int, *, without: Collection[str] = ()) -> None:
        self._without = frozenset(without)
        self._chance = Chance(seed)
        self.theme = random_theme(self._chance)
        self._theme = THEMES[self.theme]
        size = self._chance.pick(self._chance.number(3, 15), self._chance.number(1, 20))
        if self._chance.one_in(12):
            size = self._chance.number(30, 99)  # from 100 on the scheduler looks at a part of them
        self.nodes = [f"n{number}" for number in range(size)]
        self.objects: list[Manifest] = list(self._make())

    def asked(self, number: int, theme: Theme | None = None) -> Manifest:
        """A pod to ask about; each call draws another one.

        Args:
            number: for its name.
            theme: another one than the cluster's.
        """
        chance = self._chance.fork()
        made = self._pod(chance, f"asked-{number}", theme or self._theme)
        add_gate(chance, made)
        return made.manifest()

    def _pod(self, chance: Chance, name: str, theme: Theme) -> PodBuilder:
        """With or without a subject, all else is drawn as it would be."""
        made = random_pod(chance.fork(), name, theme)
        drawn: tuple[tuple[str, int, Callable[[Chance, PodBuilder], None]], ...] = (
            ("owners", 3, own),
            ("spread", theme.spread, add_spread),
            ("volumes", theme.volumes, add_volumes),
            ("features", 40, add_feature),
        )
        for subject, one_in, add in drawn:
            part = chance.fork()
            if part.one_in(one_in) and subject not in self._without:
                add(part, made)
        return made

    def _make(self) -> Iterator[Manifest]:
        chance = self._chance
        for name in NAMESPACES:
            yield namespace(name).labels({"kubernetes.io/metadata.name": name} | TEAMS[name]).manifest()
        overhead = {"podFixed": {"cpu": "250m", "memory": "120Mi"}}
        metadata = {"name": RUNTIME}
        runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": metadata}
        yield {**runtime, "handler": RUNTIME, "overhead": overhead}
        yield priority_class(HIGH, 1000).merge(preemptionPolicy="Never").manifest()
        for name in self.nodes:
            yield random_node(chance.fork(), name, self._theme).manifest()
        if "volumes" not in self._without:
            yield from storage(chance.fork(), self.nodes)
        if "owners" not in self._without:
            yield from workloads(chance.fork())
        for number in range(chance.number(1, 3) * len(self.nodes)):
            yield from self._there(f"there-{number}")

    def _there(self, name: str) -> Iterator[Manifest]:
        """A pod on a node: some have run to their end and hold nothing, some are on their way out and hold it still."""
        chance = self._chance.fork()
        made = self._pod(chance, name, replace(self._theme, pods=2 * self._theme.pods))
        made.merge(spec={"nodeName": chance.pick(*self.nodes, *self.nodes, "unknown")})
        _stage(chance, made)
        resize(chance, made)
        pod = made.manifest()
        yield pod
        yield from ephemeral_claims(chance, pod)


def _stage(chance: Chance, made: PodBuilder) -> None:
    if chance.one_in(8):
        made.phase(chance.pick("Succeeded", "Failed"))
    elif chance.one_in(8):
        made.deleted()
