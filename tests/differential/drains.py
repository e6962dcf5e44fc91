"""``python -m tests.differential.drains --clusters 200``: carry out planned node removals with kube-scheduler.

In each random cluster kube-scheduler places the pods, some pods are deleted, and trimtab plans which nodes to remove.
The nodes of the plan are then drained: they get the taints of a node that is being removed, their pods are deleted, and
kube-scheduler places a replacement for each. A replacement without a place would need a new node, so the removal was
wrong.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tests.builders import machine_set
from tests.differential.api_client import Manifest, path
from tests.differential.environment import Environment, running_environment
from tests.differential.generator.applications import NAMESPACE, Applications
from tests.differential.generator.nodes import drained
from tests.differential.generator.rng import RandomSource
from tests.differential.report import Progress
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.plan import RemoveNode
from trimtab.autoscaling.groups import build_groups
from trimtab.autoscaling.scale_down import UNNEEDED_SINCE, ScaleDownPlan, plan
from trimtab.kube.frozen import Labels

_LONG_AGO: Final = "2026-01-01T00:00:00Z"
_SPEC: Final = msgspec.convert({"scaleDown": {"enabled": True, "utilizationThreshold": "0.9"}}, ClusterAutoscalerSpec)
_MERGE: Final = "application/merge-patch+json"
_RUNNING: Final = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


@dataclass(frozen=True)
class Stranded:
    """A replacement for which kube-scheduler found no node, and why."""

    seed: int
    removals: tuple[RemoveNode, ...]
    pod: str
    message: str


@dataclass
class DrainTally:
    """Totals of a run.

    Attributes:
        clusters: clusters loaded.
        nodes: nodes in them that belong to a node group.
        removed: nodes removed.
        moved: pods of those nodes.
        rules: of ``moved``, the pods of applications with each rule.
        kept: how often a node was kept, by reason.
        stranded: replacements without a place.
    """

    clusters: int = 0
    nodes: int = 0
    removed: int = 0
    moved: int = 0
    rules: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    stranded: list[Stranded] = field(default_factory=list)

    def render(self) -> str:
        """Render the totals, one per line."""
        lines = [
            f"clusters                  {self.clusters}, with {self.nodes} nodes in node groups",
            f"nodes removed             {self.removed}",
            f"pods evicted for that     {self.moved}",
            f"replacements without node {len(self.stranded)}, in {len({each.seed for each in self.stranded})} clusters",
        ]
        lines += [f"{count:7} x evicted with {rule}" for rule, count in sorted(self.rules.items())]
        lines += [f"{count:7} x kept for {reason}" for reason, count in self.kept.most_common()]
        for each in self.stranded:
            nodes = ", ".join(removal.node for removal in each.removals)
            lines.append(f"seed {each.seed}: removing {nodes} left {each.pod} without a node: {each.message}")
        return "\n".join(lines)


class ClusterDrain:
    """Removes the nodes of one random cluster that trimtab plans to remove.

    Args:
        environment: the control plane into which the cluster is loaded.
        seed: determines the cluster, and how its nodes are drained.
        tally: the totals to update.
    """

    def __init__(self, environment: Environment, seed: int, tally: DrainTally) -> None:
        self._environment = environment
        self._seed = seed
        self._tally = tally
        self._cluster = Applications(seed)
        self._rng = RandomSource(seed + 1_000_003)
        self._pods: dict[str, Manifest] = {}
        """The manifest, without a node, of each pod that exists, by name."""

    def run(self) -> None:
        """Load the cluster, plan, and carry out the plan."""
        self._environment.load(self._cluster.objects)
        self._tally.clusters += 1
        self._tally.nodes += len(self._cluster.zones) - len(self._cluster.fixed)
        self._place_applications()
        made = self._plan()
        self._tally.kept.update(each.reason for each in made.kept)
        if not made.actions:
            return
        # Several nodes may be drained at the same time, or each is gone before the next is drained.
        together = self._rng.one_in(2)
        for batch in [made.actions] if together else [(each,) for each in made.actions]:
            self._drain(batch)

    def _place_applications(self) -> None:
        for manifest in self._cluster.pods:
            name = manifest["metadata"]["name"]
            if self._environment.schedule(manifest).node:
                self._pods[name] = manifest
        for name in sorted(self._cluster.leaving & self._pods.keys()):
            self._environment.api.delete(self._pods.pop(name))
        for manifest in self._pods.values():
            self._environment.api.request("PATCH", path(manifest, "status"), {"status": _RUNNING}, kind=_MERGE)

    def _plan(self) -> ScaleDownPlan:
        snapshot = self._environment.snapshot()
        group = machine_set().limits(0, 99).replicas(len(self._cluster.zones) - len(self._cluster.fixed))
        snapshot.put(group.build())
        for name in self._cluster.zones:
            if name not in self._cluster.fixed:
                node = snapshot.nodes.node(snapshot.nodes.slot_of[name])
                snapshot.put(msgspec.structs.replace(node, annotations=Labels({UNNEEDED_SINCE: _LONG_AGO})))
                snapshot.put(group.machine(f"m-{name}").on(name, uid=node.uid).build())
        return plan(snapshot, build_groups(snapshot), _SPEC, now=time.time())

    def _drain(self, removals: Sequence[RemoveNode]) -> None:
        api, scheduler = self._environment.api, self._environment.scheduler
        names = [removal.node for removal in removals]
        with scheduler.stopped():  # started again it knows of the taints
            for name in names:
                node = drained(self._cluster.node(name))
                api.request("PATCH", path(node), {"spec": node["spec"]}, kind=_MERGE)
        moving = [move.pod.partition("/")[2] for removal in removals for move in removal.moves]
        self._tally.removed += len(names)
        self._tally.moved += len(moving)
        # Evictions of one node are requested at the same time, or one waits for the other because of a budget.
        if self._rng.one_in(2):
            for name in moving:
                api.delete(self._pods[name])
            moving = self._rng.sample(moving, len(moving))
        waiting = [manifest for name in moving if (manifest := self._replaced(name)) is not None]
        # kube-scheduler tries pods again when others are gone or bound; the last time, nothing else changes.
        for manifest in waiting:
            self._schedule(manifest, removals)
        with scheduler.stopped():
            for name in names:
                api.request("DELETE", f"/api/v1/nodes/{name}")

    def _replaced(self, name: str) -> Manifest | None:
        """Replace a pod, and return the manifest of the replacement if it has no node yet."""
        former = self._pods.pop(name)
        self._environment.api.delete(former)
        self._tally.rules.update(self._cluster.rules_of[former["metadata"]["labels"]["app"]])
        manifest = copy.deepcopy(former)
        if manifest["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet":
            manifest["metadata"]["name"] = f"{name}-x"
        return None if self._schedule(manifest) else manifest

    def _schedule(self, manifest: Manifest, removals: Sequence[RemoveNode] = ()) -> bool:
        """Return whether a replacement got a node. With ``removals``, it is stranded if it did not."""
        name = manifest["metadata"]["name"]
        verdict = self._environment.schedule(manifest)
        if verdict.node:
            self._pods[name] = manifest
        elif removals:
            found = Stranded(self._seed, tuple(removals), f"{NAMESPACE}/{name}", verdict.message)
            self._tally.stranded.append(found)
        return bool(verdict.node)


def drain_clusters(
    environment: Environment,
    *,
    clusters: int,
    seed: int,
    report_progress: Callable[[DrainTally], None] = lambda _tally: None,
) -> DrainTally:
    """Carry out the plans for random clusters of consecutive seeds, and return the totals."""
    tally = DrainTally()
    for number in range(clusters):
        ClusterDrain(environment, seed + number, tally).run()
        report_progress(tally)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential.drains", description=__doc__)
    parser.add_argument("--clusters", type=int, default=200, help="number of clusters (default: 200)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first cluster (default: 1)")
    options = parser.parse_args()
    progress = Progress(options.clusters, "clusters", every=20)
    before = time.monotonic()
    with running_environment() as environment:
        tally = drain_clusters(
            environment,
            clusters=options.clusters,
            seed=options.seed,
            report_progress=lambda found: progress.update(found.clusters, f"{len(found.stranded)} pods without a node"),
        )
    print(tally.render())
    print(f"{time.monotonic() - before:.0f} s", flush=True)
    return 1 if tally.stranded else 0


if __name__ == "__main__":
    sys.exit(main())
