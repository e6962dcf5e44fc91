"""Random clusters, and the pending pods that are compared in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Final

from tests.builders import PodBuilder, namespace, priority_class
from tests.differential.api_client import Manifest
from tests.differential.generator.feature_mix import MIXES, FeatureMix, random_mix
from tests.differential.generator.names import HIGH, NAMESPACES, RUNTIME, TEAMS
from tests.differential.generator.nodes import random_node
from tests.differential.generator.pods import add_feature, add_gate, add_resize, random_pod
from tests.differential.generator.rng import RandomSource
from tests.differential.generator.spread import add_spread
from tests.differential.generator.storage import storage
from tests.differential.generator.volumes import add_volumes, ephemeral_claims
from tests.differential.generator.workloads import add_owner, workloads

FEATURES: Final = ("owners", "spread", "volumes", "features")
"""Features that ``--without`` can exclude from clusters and pods."""


class RandomCluster:
    """The random cluster of a seed.

    Args:
        seed: determines the cluster and its pending pods.
        without: the features to exclude, of :data:`FEATURES`.

    Attributes:
        mix: the name of its feature mix, one of :data:`~tests.differential.generator.feature_mix.MIXES`.
        objects: the manifests of all objects.
        nodes: the names of the nodes.
    """

    def __init__(self, seed: int, *, without: Collection[str] = ()) -> None:
        self._without = frozenset(without)
        self._rng = RandomSource(seed)
        self.mix = random_mix(self._rng)
        self._mix = MIXES[self.mix]
        size = self._rng.pick(self._rng.number(3, 15), self._rng.number(1, 20))
        if self._rng.one_in(12):
            size = self._rng.number(30, 99)  # from 100 nodes on, kube-scheduler filters only some of them
        self.nodes = [f"n{number}" for number in range(size)]
        self.objects: list[Manifest] = list(self._make())

    def pending_pod(self, number: int, mix: FeatureMix | None = None) -> Manifest:
        """Generate a pending pod; each call returns a different one.

        Args:
            number: the suffix of the pod's name.
            mix: the feature mix; by default the cluster's.
        """
        rng = self._rng.fork()
        made = self._pod(rng, f"pending-{number}", mix or self._mix)
        add_gate(rng, made)
        return made.manifest()

    def _pod(self, rng: RandomSource, name: str, mix: FeatureMix) -> PodBuilder:
        """Generate a pod. An excluded feature does not change the random values of the others."""
        made = random_pod(rng.fork(), name, mix)
        features: tuple[tuple[str, int, Callable[[RandomSource, PodBuilder], None]], ...] = (
            ("owners", 3, add_owner),
            ("spread", mix.spread, add_spread),
            ("volumes", mix.volumes, add_volumes),
            ("features", 40, add_feature),
        )
        for feature, one_in, add in features:
            part = rng.fork()
            if part.one_in(one_in) and feature not in self._without:
                add(part, made)
        return made

    def _make(self) -> Iterator[Manifest]:
        rng = self._rng
        for name in NAMESPACES:
            yield namespace(name).labels({"kubernetes.io/metadata.name": name} | TEAMS[name]).manifest()
        overhead = {"podFixed": {"cpu": "250m", "memory": "120Mi"}}
        metadata = {"name": RUNTIME}
        runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": metadata}
        yield {**runtime, "handler": RUNTIME, "overhead": overhead}
        yield priority_class(HIGH, 1000).merge(preemptionPolicy="Never").manifest()
        for name in self.nodes:
            yield random_node(rng.fork(), name, self._mix).manifest()
        if "volumes" not in self._without:
            yield from storage(rng.fork(), self.nodes)
        if "owners" not in self._without:
            yield from workloads(rng.fork())
        for number in range(rng.number(1, 3) * len(self.nodes)):
            yield from self._existing_pod(f"existing-{number}")

    def _existing_pod(self, name: str) -> Iterator[Manifest]:
        """A bound pod; some have ended and use no capacity, some are terminating and still use it."""
        rng = self._rng.fork()
        made = self._pod(rng, name, replace(self._mix, pod_affinity=2 * self._mix.pod_affinity))
        made.merge(spec={"nodeName": rng.pick(*self.nodes, *self.nodes, "unknown")})
        _add_lifecycle(rng, made)
        add_resize(rng, made)
        pod = made.manifest()
        yield pod
        yield from ephemeral_claims(rng, pod)


def _add_lifecycle(rng: RandomSource, made: PodBuilder) -> None:
    if rng.one_in(8):
        made.phase(rng.pick("Succeeded", "Failed"))
    elif rng.one_in(8):
        made.deleted()
