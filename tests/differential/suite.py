"""Compares both schedulers on random pods in random clusters."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection
from typing import Any, Final

from tests.builders import expression
from tests.differential.api_client import Manifest, key
from tests.differential.comparison import differences, scores_differ
from tests.differential.environment import Environment
from tests.differential.generator.cluster import RandomCluster
from tests.differential.generator.evolution import evolve
from tests.differential.generator.feature_mix import MIXES
from tests.differential.generator.names import NAMESPACES
from tests.differential.generator.nodes import drained
from tests.differential.generator.rng import RandomSource
from tests.differential.kube_scheduler import Verdict
from tests.differential.report import Disagreement, Tally
from tests.differential.trimtab_placer import TrimtabVerdict

PER_CLUSTER: Final = 100
"""Pods compared in each cluster."""

_MAX_PLACED: Final = 15
_OTHER_CLUSTER: Final = 500_009
_RESERVED: Final = 5
"""One in this many pods reserves its volumes."""
_FIRST_RESERVED: Final = 1_000
_NAMES_AND_NUMBERS: Final = re.compile(rf'^\d+ |"[^"]*" ?|\{{[^}}]*\}}|(?:{"|".join(NAMESPACES)})/[\w-]+ ?')


class ClusterComparison:
    """Compares pods in one random cluster, which changes once; some nodes then drain.

    Args:
        environment: the control plane into which the cluster is loaded.
        seed: determines the cluster and the pods. kube-scheduler breaks ties randomly.
        without: features to exclude, see :data:`~tests.differential.generator.cluster.FEATURES`.
        tally: the totals to update.
    """

    def __init__(self, environment: Environment, seed: int, *, without: Collection[str], tally: Tally) -> None:
        self._environment = environment
        self._seed = seed
        self._rng = RandomSource(seed + 1_000_003)
        self._cluster = RandomCluster(seed, without=without)
        self._without = without
        self._objects = {key(manifest): manifest for manifest in self._cluster.objects}
        self._trimtab = environment.load(self._cluster.objects)
        self._tally = tally
        self._placed_pods: dict[str, Manifest] = {}
        self._draining = False
        tally.clusters += 1

    def compare_next_pod(self, number: int) -> None:
        """Compare a random pod, which may remain bound, and sometimes a copy of it that is restricted to other nodes.

        kube-scheduler gives no reasons for single nodes if any node fits. So the copy excludes the nodes that fit, or
        all nodes except one.
        """
        rng = self._rng.fork()
        manifest = self._cluster.pending_pod(number)
        keep = rng.one_in(5) and len(self._placed_pods) < _MAX_PLACED
        actual = self._compare_pod(manifest, keep=keep)
        if keep and rng.one_in(4):
            for twin in range(rng.number(1, 4)):  # consecutive pods of one template
                self._compare_pod(_renamed(manifest, f"twin-{twin}"), keep=True)
        if rng.one_in(4):
            self._compare_pod(on_node_only(manifest, rng.pick(*self._cluster.nodes)))
        elif rng.one_in(2) and 0 < len(actual.fits) < len(self._cluster.nodes):
            self._compare_pod(without_nodes(manifest, sorted(actual.fits)))
        if self._placed_pods and rng.one_in(8):
            self._forget(rng.pick(*sorted(self._placed_pods)))

    def change(self) -> None:
        """Create, delete and change objects, and update trimtab's snapshot incrementally."""
        other = RandomCluster(self._seed + _OTHER_CLUSTER, without=self._without)
        deleted, created = evolve(self._rng.fork(), self._objects.values(), other.objects)
        made = self._environment.change(deleted.values(), created.values())
        self._trimtab.change(deleted.values(), made)
        self._objects = {name: obj for name, obj in self._objects.items() if name not in deleted} | created

    def drain(self) -> None:
        """Drain some nodes: kube-scheduler sees their taints, and trimtab's snapshot has the nodes as planners do."""
        rng = self._rng.fork()
        nodes = [manifest for manifest in self._objects.values() if manifest["kind"] == "Node"]
        draining = [drained(manifest) for manifest in rng.sample(nodes, rng.pick(1, 1, 2, 3))]
        self._environment.change((), draining)
        self._trimtab.drain([manifest["metadata"]["name"] for manifest in draining])
        self._objects |= {key(manifest): manifest for manifest in draining}
        self._draining = True

    def reserve(self, number: int) -> None:
        """Compare pods with volumes, each of which keeps its node and its volumes reserved.

        kube-scheduler only assumes these pods, because no controller binds their volumes, so this is the last step in
        a cluster. If two pods share a claim, kube-scheduler may conflict with its own write and requeue the later pod.
        The method then returns early.

        Args:
            number: the number of pods.
        """
        self._environment.scheduler.allow_volume_binding(True)
        for each in range(number):
            manifest = self._cluster.pending_pod(_FIRST_RESERVED + each, MIXES["volumes"])
            expected = self._environment.scheduler.evaluate(manifest, keep=True)
            actual = self._trimtab.evaluate(expected.created)
            if differences(expected, actual) and self._environment.scheduler.lost_assumed_pod():
                return
            self._compare(manifest, expected, actual)
            if expected.node:
                self._keep(manifest, expected.node)
                self._trimtab.reserve(expected.created, expected.node)

    def _compare_pod(self, manifest: Manifest, *, keep: bool = False) -> TrimtabVerdict:
        expected = self._environment.scheduler.evaluate(manifest, keep=keep)
        actual = self._trimtab.evaluate(expected.created)
        self._compare(manifest, expected, actual)
        if keep and expected.bound:
            self._keep(manifest, expected.node)
            self._trimtab.place(expected.bound)
        return actual

    def _keep(self, manifest: Manifest, node: str) -> None:
        self._placed_pods[manifest["metadata"]["name"]] = {**manifest, "spec": {**manifest["spec"], "nodeName": node}}

    def _compare(self, manifest: Manifest, expected: Verdict, actual: TrimtabVerdict) -> None:
        self._count(expected, actual)
        for difference in differences(expected, actual):
            objects = [*self._objects.values(), *self._placed_pods.values()]
            self._tally.disagreements.append(Disagreement(self._seed, objects, manifest, difference))

    def _forget(self, name: str) -> None:
        manifest = self._placed_pods.pop(name)
        self._environment.api.delete(manifest)
        self._trimtab.forget(manifest)

    def _count(self, expected: Verdict, actual: TrimtabVerdict) -> None:
        tally = self._tally
        tally.compared += 1
        tally.draining += self._draining
        tally.reused += expected.reused
        if not expected.node:
            tally.unschedulable += 1
            tally.reasons.update(reasons(expected.message))
        if len(expected.scores) > 1:
            tally.with_choice += 1
            tally.scores_compared += sum(map(len, expected.scores.values()))
            if scores_differ(expected):
                tally.ranked += 1
                tally.in_top += expected.node in actual.best
                tally.ties += expected.node in actual.best and len(actual.best) > 1


def compare_pods(
    environment: Environment,
    *,
    pods: int,
    seed: int,
    without: Collection[str] = (),
    per_cluster: int = PER_CLUSTER,
    report_progress: Callable[[Tally], None] = lambda _tally: None,
) -> Tally:
    """Compare pods in random clusters of consecutive seeds.

    Args:
        environment: the control plane; its objects are deleted.
        pods: the minimum number of pods.
        seed: the seed of the first cluster.
        without: features to exclude.
        per_cluster: pods in each cluster.
        report_progress: called with the totals after each step.

    Returns:
        The totals.
    """
    tally = Tally()
    while tally.compared < pods:
        before = tally.compared
        comparison = ClusterComparison(environment, seed + tally.clusters, without=without, tally=tally)
        number = 0
        changed = False
        while tally.compared < min(pods, before + per_cluster - per_cluster // 10):  # one step may compare several pods
            comparison.compare_next_pod(number)
            number += 1
            report_progress(tally)
            if not changed and tally.compared >= before + per_cluster // 2:
                comparison.change()
                comparison.drain()
                changed = True
        if "volumes" not in without:
            comparison.reserve(min(per_cluster // _RESERVED, pods - tally.compared))
            report_progress(tally)
    return tally


def reasons(message: str) -> list[str]:
    """Split a message into reasons without numbers and names, for counting."""
    reported = re.split(r"no new claims|preemption:|\. not found", message)[0]
    text = reported.partition("nodes are available:")[2].strip().rstrip(".") or reported
    return [_NAMES_AND_NUMBERS.sub("", part).strip() for part in text.split(", ")]


def on_node_only(manifest: Manifest, name: str) -> Manifest:
    """Copy the pod, restricted to one node."""
    return _restricted(manifest, expression("metadata.name", "In", name))


def without_nodes(manifest: Manifest, names: list[str]) -> Manifest:
    """Copy the pod, restricted to nodes other than these."""
    return _restricted(manifest, *(expression("metadata.name", "NotIn", name) for name in names))


def _restricted(manifest: Manifest, *fields: dict[str, Any]) -> Manifest:
    found = _renamed(manifest, "restricted")  # the pod itself may still exist
    affinity = found["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in required.setdefault("nodeSelectorTerms", [{}]):
        term.setdefault("matchFields", []).extend(fields)
    return found


def _renamed(manifest: Manifest, suffix: str) -> Manifest:
    found = copy.deepcopy(manifest)
    found["metadata"]["name"] += f"-{suffix}"
    return found
