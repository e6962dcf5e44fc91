"""trimtab's verdict on a pod, in a form that compares with kube-scheduler's.

The verdict is that of the scheduler, whose :class:`~trimtab.scheduling.planner.CyclePlanner` is kept over the pods of a
cluster. The other users of placement must come to the same: ``feasible``, ``place``, the verdicts by node, and the
scores.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from tests.differential.api_client import Manifest
from trimtab.api.scheduler_policy import DEFAULT_SCHEDULER
from trimtab.cluster.disruption_signals import as_draining
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.kube.wire.decode import decode_json, decode_object
from trimtab.kube.wire.intern import Interner
from trimtab.placement.placer import Placer
from trimtab.placement.registry import DEFAULT, Profile
from trimtab.scheduling.planner import CyclePlanner, Reject


@dataclass(frozen=True)
class TrimtabVerdict:
    """trimtab's verdict on a pod.

    Attributes:
        fits: the names of the nodes that pass all filters.
        message: why no node fits; empty if one fits.
        scores: the weighted scores by node and plugin, for the nodes that fit.
    """

    fits: frozenset[str]
    message: str = ""
    scores: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def totals(self) -> dict[str, int]:
        """The sum of the plugins' scores by node."""
        return {node: sum(by_plugin.values()) for node, by_plugin in self.scores.items()}

    @property
    def best(self) -> frozenset[str]:
        """The nodes with the highest total score."""
        totals = self.totals
        highest = max(totals.values(), default=0)
        return frozenset(node for node, total in totals.items() if total == highest)


class TrimtabPlacer:
    """Runs trimtab's filters and scores for one pod after the other, and updates the snapshot between them.

    Args:
        snapshot: the cluster state that kube-scheduler has in its cache.
        profile: the filters and the weights of the scores.
    """

    def __init__(self, snapshot: Snapshot, profile: Profile = DEFAULT) -> None:
        self._snapshot = snapshot
        self._placer = Placer(snapshot, profile)
        self._planner = CyclePlanner(snapshot, {DEFAULT_SCHEDULER: self._placer})
        self._interner = Interner()

    def evaluate(self, manifest: Manifest) -> TrimtabVerdict:
        """Filter and score all nodes for the pod, as if it were pending."""
        pod = msgspec.structs.replace(self._decoded(manifest), node="")
        # The snapshot does not contain the pod, or contains it as a pending pod that uses no node.
        mask = self._placer.feasible(pod)
        slots = np.flatnonzero(mask)
        nodes = self._snapshot.nodes
        names = {int(slot): nodes.node(int(slot)).name for slot in slots}
        with self._snapshot.fork():
            placed = self._placer.place([pod])[0]
        with self._snapshot.fork():
            [decision] = self._planner.plan([pod])
        explained = {each.node for each in self._placer.node_verdicts(pod) if each.fits}
        assert not names or explained == set(names.values()), f"{pod.key}: {sorted(explained)} fit by their verdicts"
        if isinstance(decision, Reject):
            message = self._placer.unschedulable_message(pod)
            assert (names, placed.pod.node, placed.message) == ({}, "", message), f"{pod.key}: only the plan rejects it"
            # The plan appends a clause about preemption, as kube-scheduler does.
            assert decision.message.startswith(message), f"{pod.key}: {decision.message}, but {message}"
            return TrimtabVerdict(frozenset(), message)
        assert names, f"{pod.key}: only the plan places it, on {decision.node}"
        columns = self._placer.scorer.breakdown(pod, mask)
        scores = {
            name: {plugin: int(scores_by_slot[slot]) for plugin, scores_by_slot in columns.items()}
            for slot, name in names.items()
        }
        verdict = TrimtabVerdict(frozenset(names.values()), "", scores)
        chosen = {decision.node, placed.pod.node}
        assert chosen == {min(verdict.best)}, f"{pod.key}: {sorted(chosen)}, but {sorted(verdict.best)} score highest"
        assert decision.feasible == len(names), f"{pod.key}: {decision.feasible} feasible nodes, but {len(names)}"
        return verdict

    def place(self, manifest: Manifest) -> None:
        """Add a bound pod to the snapshot."""
        self._snapshot.put(self._decoded(manifest))

    def reserve(self, manifest: Manifest, node: str) -> None:
        """Reserve capacity and volumes for the pod on a node, as planners do."""
        pod = msgspec.structs.replace(self._decoded(manifest), node="")
        self._placer.reserve(pod, self._snapshot.nodes.slot_of[node])

    def forget(self, manifest: Manifest) -> None:
        """Remove a deleted pod from the snapshot."""
        self._snapshot.remove(self._decoded(manifest))

    def drain(self, names: Iterable[str]) -> None:
        """Let nodes drain, in the snapshot only, as planners do with the nodes that they remove."""
        nodes = self._snapshot.nodes
        for name in names:
            self._snapshot.put(as_draining(nodes.node(nodes.slot_of[name])))

    def change(self, deleted: Iterable[Manifest], created: Iterable[Manifest]) -> None:
        """Remove deleted objects from the snapshot, and add created and changed ones."""
        for manifest in deleted:
            if (value := decode_object(manifest, interner=self._interner)) is not None:
                self._snapshot.remove(value)
        for manifest in created:
            if (value := decode_object(manifest, interner=self._interner)) is not None:
                self._snapshot.put(value)

    def _decoded(self, manifest: Manifest) -> Pod:
        pod = decode_json("Pod", msgspec.json.encode(manifest), interner=self._interner)
        assert isinstance(pod, Pod)
        return pod
