"""A test case: a cluster, a policy and the evictions of both sides, with the facts that proofs use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import msgspec
import numpy as np

from tests.descheduler_differential.descheduler import Eviction
from tests.descheduler_differential.trimtab_plan import TrimtabPlan
from tests.differential.api_client import Manifest, key
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.plan import Evict, Kept
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning.scope import PolicyScope
from trimtab.descheduling.strategies.registry import IN_ORDER
from trimtab.descheduling.strategies.strategy import AnyStrategy, Measure
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

Side = Literal["descheduler", "trimtab"]

ANNOTATION: Final = "descheduler.alpha.kubernetes.io/"
EVICTOR: Final = "DefaultEvictor"


@dataclass(frozen=True)
class Difference:
    """A pod that only one side evicts.

    Attributes:
        pod: ``namespace/name``.
        side: the side that evicts the pod.
        strategy: the strategy that evicts it.
    """

    pod: str
    side: Side
    strategy: str


@dataclass
class Case:
    """One cluster, one policy, and the evictions of both sides.

    Attributes:
        objects: the manifests of the cluster.
        policy: the policy, descheduler/v1alpha2.
        trimtab: trimtab's plan.
        descheduler: the descheduler's evictions by pod.
    """

    objects: Sequence[Manifest]
    policy: Manifest
    trimtab: TrimtabPlan
    descheduler: dict[str, Eviction]
    _manifests: dict[str, Manifest] = field(init=False)

    def __post_init__(self) -> None:
        self._manifests = {key(each): each for each in self.objects}

    @property
    def differences(self) -> list[Difference]:
        """The pods that only one side evicts: the descheduler's first, sorted by name."""
        moves = self.trimtab.moves
        only_descheduler = [
            Difference(pod, "descheduler", each.strategy) for pod, each in self.descheduler.items() if pod not in moves
        ]
        only_trimtab = [
            Difference(pod, "trimtab", each.strategy) for pod, each in moves.items() if pod not in self.descheduler
        ]
        return sorted(only_descheduler, key=lambda each: each.pod) + sorted(only_trimtab, key=lambda each: each.pod)

    # ── the cluster ─────────────────────────────────────────────────────────────────────────────────────────────────

    def manifest(self, pod: str) -> Manifest:
        """The pod's manifest."""
        return self._manifests[f"Pod/{pod}"]

    def pod(self, name: str) -> Pod:
        """The pod in the snapshot."""
        return self.trimtab.snapshot.pods[name]

    def annotation(self, pod: str, name: str) -> str | None:
        """The value of an annotation with the descheduler's prefix."""
        found: str | None = self.manifest(pod)["metadata"].get("annotations", {}).get(ANNOTATION + name)
        return found

    def kept(self, difference: Difference) -> Kept | None:
        """The entry of the plan for a kept pod."""
        return self.trimtab.kept.get((difference.pod, difference.strategy))

    def reason(self, difference: Difference) -> str:
        """The reason code of a kept pod; empty if the plan does not contain the pod."""
        kept = self.kept(difference)
        return "" if kept is None else kept.reason

    def args(self, plugin: str) -> dict[str, Any]:
        """The plugin's arguments in the policy."""
        for profile in self.policy["profiles"]:
            for config in profile["pluginConfig"]:
                if config["name"] == plugin:
                    return dict(config.get("args") or {})
        return {}

    @cached_property
    def disabled(self) -> frozenset[str]:
        """The default protections that the policy disables."""
        return frozenset(self.args(EVICTOR).get("podProtections", {}).get("defaultDisabled", ()))

    @cached_property
    def node_fit(self) -> bool:
        """Whether the policy enables nodeFit."""
        return bool(self.args(EVICTOR).get("nodeFit"))

    def is_ready(self, node: str) -> bool:
        """Whether the node is ready. The descheduler ignores other nodes."""
        nodes = self.trimtab.snapshot.nodes
        return nodes.node(nodes.slot_of[node]).ready

    def taints(self, node: str) -> list[Manifest]:
        """The node's taints."""
        found: list[Manifest] = self._manifests[f"Node/{node}"]["spec"].get("taints") or []
        return found

    def is_cordoned(self, node: str) -> bool:
        """Whether the node is cordoned."""
        return bool(self._manifests[f"Node/{node}"]["spec"].get("unschedulable"))

    def scope(self, strategy: str) -> PolicyScope:
        """The scope of the imported policy with the strategy."""
        return PolicyScope(self._policy_of(strategy).spec, self.trimtab.snapshot, now=self.trimtab.now)

    @property
    def visible(self) -> list[str]:
        """The nodes that the descheduler considers: ready nodes that the policy's nodeSelector selects."""
        scope, nodes = self.scope(self._strategies[0]), self.trimtab.snapshot.nodes
        names = [nodes.node(slot).name for slot in nodes.slot_of.values() if scope.selected[slot]]
        return [name for name in names if self.is_ready(name)]

    # ── the evictions ───────────────────────────────────────────────────────────────────────────────────────────────

    def evicted_by_trimtab(self, strategy: str) -> list[Evict]:
        """trimtab's evictions by that strategy, in order."""
        return [action for action in self.trimtab.plan.actions if action.strategy == strategy]

    def evicted_by_descheduler(self, strategy: str) -> list[Eviction]:
        """The descheduler's evictions by that strategy, in order."""
        return [each for each in self.descheduler.values() if each.strategy == strategy]

    # ── simulations ─────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def state(self, *, after: bool, but: str = "") -> Iterator[Snapshot]:
        """Fork the snapshot for the block; changes in the block are undone at its end.

        Args:
            after: apply trimtab's plan first.
            but: a pod whose move is not applied.
        """
        snapshot = self.trimtab.snapshot
        with snapshot.fork():
            placer = Placer(snapshot)
            for action in self.trimtab.plan.actions if after else ():
                pod = snapshot.pods[action.key]
                if action.key == but:
                    continue
                if not action.target:
                    snapshot.remove(pod)
                elif action.target != pod.node:
                    placer.reserve(placer.unbind(pod), snapshot.nodes.slot_of[action.target])
            yield snapshot

    def fitting_nodes(self, difference: Difference, *, after: bool, home: bool = False) -> frozenset[str]:
        """The nodes that fit the pod by all of kube-scheduler's filters.

        Args:
            difference: the pod and the strategy.
            after: apply trimtab's plan first.
            home: include the pod's own node.
        """
        with self.state(after=after, but=difference.pod) as snapshot:
            pod = snapshot.pods[difference.pod]
            if pod.terminal:
                return frozenset()
            placer = Placer(snapshot)
            takes = placer.feasible(placer.unbind(pod)) & self.scope(difference.strategy).destinations
            names = {snapshot.nodes.node(int(slot)).name for slot in np.flatnonzero(takes)}
        return frozenset(names if home else names - {pod.node})

    def matching_nodes(self, pod: str) -> frozenset[str]:
        """The nodes that match the pod by selector, affinity, taints and cordon, regardless of capacity."""
        snapshot = self.trimtab.snapshot
        mask = Placer(snapshot).eligible(msgspec.structs.replace(snapshot.pods[pod], node=""))
        return frozenset(snapshot.nodes.node(int(slot)).name for slot in np.flatnonzero(mask))

    def improving_nodes(self, difference: Difference) -> frozenset[str]:
        """The nodes to which a move after the plan lowers the strategy's measure and increases no other strategy's.

        An empty result proves that no further move of this pod improves trimtab's plan.
        """
        found = set()
        targets = self.fitting_nodes(difference, after=True)
        with self.state(after=True) as snapshot:
            before = self._measures(snapshot)
            for target in targets:
                mark = snapshot.mark()
                placer = Placer(snapshot)
                placer.reserve(placer.unbind(snapshot.pods[difference.pod]), snapshot.nodes.slot_of[target])
                then = self._measures(snapshot)
                snapshot.undo(mark)
                others = [name for name in self._strategies if name != difference.strategy]
                if then[difference.strategy] < before[difference.strategy] and all(
                    then[name] <= before[name] for name in others
                ):
                    found.add(target)
        return frozenset(found)

    def lowers_measure(self, difference: Difference, *, after: bool) -> bool:
        """Whether deleting the pod lowers the strategy's measure."""
        with self.state(after=after) as snapshot:
            if difference.pod not in snapshot.pods:
                return False
            before = self._measures(snapshot)[difference.strategy]
            snapshot.remove(snapshot.pods[difference.pod])
            return self._measures(snapshot)[difference.strategy] < before

    def measure(self, strategy: str, *, after: bool) -> Measure:
        """The strategy's measure before or after trimtab's plan."""
        with self.state(after=after) as snapshot:
            return self._measures(snapshot)[strategy]

    def counts(self, strategy: str, part: str) -> tuple[Counter[str], Counter[str]]:
        """The numbers of the descheduler's and trimtab's evictions by the strategy, per ``node`` or ``namespace``."""
        descheduler, trimtab = self.evicted_by_descheduler(strategy), self.evicted_by_trimtab(strategy)
        if part == "node":
            return Counter(each.node for each in descheduler), Counter(each.node for each in trimtab)
        return Counter(each.pod.split("/")[0] for each in descheduler), Counter(each.namespace for each in trimtab)

    @cached_property
    def _strategies(self) -> list[str]:
        return [name for policy in self.trimtab.policies for name, _ in policy.spec.strategies.enabled()]

    def _policy_of(self, strategy: str) -> DeschedulerPolicy:
        for policy in self.trimtab.policies:
            if strategy in dict(policy.spec.strategies.enabled()):
                return policy
        raise AssertionError(f"no imported policy enables {strategy}")

    def _measures(self, snapshot: Snapshot) -> dict[str, Measure]:
        found: dict[str, Measure] = {}
        for policy in self.trimtab.policies:
            enabled: dict[str, Any] = dict(policy.spec.strategies.enabled())
            scope = PolicyScope(policy.spec, snapshot, now=self.trimtab.now)
            for kind in IN_ORDER:
                if kind.NAME in enabled:
                    strategy: AnyStrategy = kind(enabled[kind.NAME].params, scope, Placer(snapshot))
                    found[kind.NAME] = strategy.measure()
        return found
