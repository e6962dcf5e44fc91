"""What can be known of a case without asking either side's opinion: for classes to prove what they claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from tests.descheduler_differential.ours import Ours
from tests.descheduler_differential.theirs import Eviction
from tests.differential.server import Manifest, key
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.plan import Evict, Kept
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.context import pending
from trimtab.descheduling.scope import Scope
from trimtab.descheduling.strategies.registry import IN_ORDER
from trimtab.descheduling.strategies.strategy import AnyStrategy, Measure
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

Side = Literal["theirs", "ours"]

ANNOTATION: Final = "descheduler.alpha.kubernetes.io/"
EVICTOR: Final = "DefaultEvictor"


@dataclass(frozen=True)
class Difference:
    """A pod that only one of both would evict.

    Attributes:
        pod: ``namespace/name``.
        side: who would.
        strategy: by which strategy.
    """

    pod: str
    side: Side
    strategy: str


@dataclass
class Case:
    """One cluster, one policy, and what both make of it.

    Attributes:
        objects: the cluster.
        policy: in descheduler/v1alpha2.
        ours: our plan.
        theirs: their evictions, by pod.
    """

    objects: Sequence[Manifest]
    policy: Manifest
    ours: Ours
    theirs: dict[str, Eviction]
    _manifests: dict[str, Manifest] = field(init=False)

    def __post_init__(self) -> None:
        self._manifests = {key(each): each for each in self.objects}

    @property
    def differences(self) -> list[Difference]:
        """The pods that only one of both would evict, theirs first, by name."""
        moves = self.ours.moves
        only_they = [Difference(pod, "theirs", each.strategy) for pod, each in self.theirs.items() if pod not in moves]
        only_we = [Difference(pod, "ours", each.strategy) for pod, each in moves.items() if pod not in self.theirs]
        return sorted(only_they, key=lambda each: each.pod) + sorted(only_we, key=lambda each: each.pod)

    # ── what is there ───────────────────────────────────────────────────────────────────────────────────────────────

    def manifest(self, pod: str) -> Manifest:
        """The pod as it was described."""
        return self._manifests[f"Pod/{pod}"]

    def pod(self, name: str) -> Pod:
        """The pod as planners read it."""
        return self.ours.snapshot.pods[name]

    def annotation(self, pod: str, name: str) -> str | None:
        """The value of one of the descheduler's annotations."""
        found: str | None = self.manifest(pod)["metadata"].get("annotations", {}).get(ANNOTATION + name)
        return found

    def kept(self, difference: Difference) -> Kept | None:
        """What our plan says of a pod that it leaves."""
        return self.ours.kept.get((difference.pod, difference.strategy))

    def reason(self, difference: Difference) -> str:
        """The reason code with which our plan leaves the pod; empty where it says nothing."""
        kept = self.kept(difference)
        return "" if kept is None else kept.reason

    def args(self, plugin: str) -> dict[str, Any]:
        """The plugin's arguments as the policy gives them."""
        for profile in self.policy["profiles"]:
            for config in profile["pluginConfig"]:
                if config["name"] == plugin:
                    return dict(config.get("args") or {})
        return {}

    @cached_property
    def disabled(self) -> frozenset[str]:
        """The default protections that the policy gives up."""
        return frozenset(self.args(EVICTOR).get("podProtections", {}).get("defaultDisabled", ()))

    @cached_property
    def node_fit(self) -> bool:
        """Whether the policy wants nodeFit."""
        return bool(self.args(EVICTOR).get("nodeFit"))

    def is_ready(self, node: str) -> bool:
        """Whether the real descheduler sees the node."""
        nodes = self.ours.snapshot.nodes
        return nodes.node(nodes.slot_of[node]).ready

    def is_cordoned(self, node: str) -> bool:
        """Whether the node is cordoned."""
        return bool(self._manifests[f"Node/{node}"]["spec"].get("unschedulable"))

    def scope(self, strategy: str) -> Scope:
        """The scope of our policy that has the strategy."""
        return Scope(self._policy_of(strategy).spec, self.ours.snapshot, now=self.ours.now)

    @property
    def visible(self) -> list[str]:
        """The nodes that the real descheduler works with: ready ones that the policy's nodeSelector picks."""
        scope, nodes = self.scope(self._strategies[0]), self.ours.snapshot.nodes
        names = [nodes.node(slot).name for slot in nodes.slot_of.values() if scope.selected[slot]]
        return [name for name in names if self.is_ready(name)]

    # ── what was done ───────────────────────────────────────────────────────────────────────────────────────────────

    def evicted_by_us(self, strategy: str) -> list[Evict]:
        """Our evictions of that strategy, in order."""
        return [action for action in self.ours.plan.actions if action.strategy == strategy]

    def evicted_by_them(self, strategy: str) -> list[Eviction]:
        """Their evictions of that strategy, in order."""
        return [each for each in self.theirs.values() if each.strategy == strategy]

    # ── what would be ───────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def state(self, *, after: bool, but: str = "") -> Iterator[Snapshot]:
        """The cluster as it is, or as it is after our plan; to look at, and to change for as long as it lasts.

        Args:
            after: once our plan is done.
            but: a pod whose move is left out.
        """
        snapshot = self.ours.snapshot
        with snapshot.fork():
            placer = Placer(snapshot)
            for action in self.ours.plan.actions if after else ():
                pod = snapshot.pods[action.key]
                if action.key == but:
                    continue
                if not action.target:
                    snapshot.remove(pod)
                elif action.target != pod.node:
                    placer.reserve(placer.lift(pod), snapshot.nodes.slot_of[action.target])
            yield snapshot

    def takers(self, difference: Difference, *, after: bool, home: bool = False) -> frozenset[str]:
        """The nodes that take the pod by all of the scheduler's rules.

        Args:
            difference: about which pod, and by whose policy.
            after: once our plan is done.
            home: count the pod's own node as well.
        """
        with self.state(after=after, but=difference.pod) as snapshot:
            pod = snapshot.pods[difference.pod]
            if pod.terminal:
                return frozenset()
            placer = Placer(snapshot)
            takes = placer.feasible(placer.lift(pod)) & self.scope(difference.strategy).destinations
            names = {snapshot.nodes.node(int(slot)).name for slot in np.flatnonzero(takes)}
        return frozenset(names if home else names - {pod.node})

    def suits(self, pod: str) -> frozenset[str]:
        """The nodes that suit the pod by selector, affinity, taints and cordon, however full they are."""
        snapshot = self.ours.snapshot
        mask = Placer(snapshot).eligible(pending(snapshot.pods[pod]))
        return frozenset(snapshot.nodes.node(int(slot)).name for slot in np.flatnonzero(mask))

    def betters(self, difference: Difference) -> frozenset[str]:
        """The nodes to which the pod could go after our plan so that its strategy's measure falls and no other's rises.

        Empty is the proof that our plan leaves nothing that one more move of this pod would mend.
        """
        found = set()
        targets = self.takers(difference, after=True)
        with self.state(after=True) as snapshot:
            before = self._measures(snapshot)
            for target in targets:
                mark = snapshot.mark()
                placer = Placer(snapshot)
                placer.reserve(placer.lift(snapshot.pods[difference.pod]), snapshot.nodes.slot_of[target])
                then = self._measures(snapshot)
                snapshot.undo(mark)
                others = [name for name in self._strategies if name != difference.strategy]
                if then[difference.strategy] < before[difference.strategy] and all(
                    then[name] <= before[name] for name in others
                ):
                    found.add(target)
        return frozenset(found)

    def matters(self, difference: Difference, *, after: bool) -> bool:
        """Whether the strategy's measure would fall if the pod were gone altogether."""
        with self.state(after=after) as snapshot:
            if difference.pod not in snapshot.pods:
                return False
            before = self._measures(snapshot)[difference.strategy]
            snapshot.remove(snapshot.pods[difference.pod])
            return self._measures(snapshot)[difference.strategy] < before

    def measure(self, strategy: str, *, after: bool) -> Measure:
        """The strategy's measure."""
        with self.state(after=after) as snapshot:
            return self._measures(snapshot)[strategy]

    def counts(self, strategy: str, part: str) -> tuple[Counter[str], Counter[str]]:
        """Their and our evictions of the strategy, by ``node`` or ``namespace``."""
        theirs, ours = self.evicted_by_them(strategy), self.evicted_by_us(strategy)
        if part == "node":
            return Counter(each.node for each in theirs), Counter(each.node for each in ours)
        return Counter(each.pod.split("/")[0] for each in theirs), Counter(each.namespace for each in ours)

    @cached_property
    def _strategies(self) -> list[str]:
        return [name for policy in self.ours.policies for name, _ in policy.spec.strategies.enabled()]

    def _policy_of(self, strategy: str) -> DeschedulerPolicy:
        for policy in self.ours.policies:
            if strategy in dict(policy.spec.strategies.enabled()):
                return policy
        raise AssertionError(f"no policy of ours has {strategy}")

    def _measures(self, snapshot: Snapshot) -> dict[str, Measure]:
        found: dict[str, Measure] = {}
        for policy in self.ours.policies:
            enabled: dict[str, Any] = dict(policy.spec.strategies.enabled())
            scope = Scope(policy.spec, snapshot, now=self.ours.now)
            for kind in IN_ORDER:
                if kind.NAME in enabled:
                    strategy: AnyStrategy = kind(enabled[kind.NAME].params, scope, Placer(snapshot))
                    found[kind.NAME] = strategy.measure()
        return found
