"""Unexplained differences and totals of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.descheduler_differential.case import Case, Difference
from tests.differential.api_client import Manifest
from tests.differential.report import documents


@dataclass(frozen=True)
class Unexplained:
    """A difference without a class: one side has a bug, or the table lacks a row.

    Attributes:
        seed: the seed of the cluster.
        objects: the manifests of the cluster.
        policy: the policy, descheduler/v1alpha2.
        difference: the pod and the side that evicts it.
        decision: trimtab's decision about the pod.
    """

    seed: int
    objects: list[Manifest]
    policy: Manifest
    difference: Difference
    decision: str

    @property
    def group(self) -> str:
        """The group of the difference: strategy and side."""
        return f"{self.difference.strategy}-{self.difference.side}"

    def render(self) -> str:
        """Render the case as YAML, the policy last, with both decisions in comments."""
        shown = [each for each in self.objects if self._is_relevant(each)]
        head = f"# cluster of seed {self.seed}, {len(shown)} objects and the policy\n"
        head += f"# only {self.difference.side} evicts {self.difference.pod} ({self.difference.strategy})\n"
        head += f"# trimtab: {self.decision}\n"
        return f"{head}{documents([*shown, {'metadata': {}, **self.policy}])}"

    def _is_relevant(self, manifest: Manifest) -> bool:
        """Whether the case depends on an object: namespaces without pods are omitted."""
        if manifest["kind"] != "Namespace":
            return True
        name = manifest["metadata"]["name"]
        return any(each["metadata"].get("namespace") == name for each in self.objects if each["kind"] == "Pod")


def trimtab_decision(case: Case, difference: Difference) -> str:
    """Describe trimtab's decision about the pod."""
    move = case.trimtab.moves.get(difference.pod)
    if move is not None:
        return f"{move.reason}, to {move.target or 'no node'}: {move.message}"
    kept = case.kept(difference)
    return f"{kept.reason}: {kept.message}" if kept is not None else "not considered"


@dataclass
class Tally:
    """Totals of a run.

    Attributes:
        clusters: clusters loaded.
        policies: policies compared.
        alike: policies for which both sides evict the same pods.
        both: pods that both sides evict.
        named: differences by class and side.
        strategies: pods that both sides evict, by strategy.
        unexplained: differences without a class.
    """

    clusters: int = 0
    policies: int = 0
    alike: int = 0
    both: int = 0
    named: Counter[tuple[str, str]] = field(default_factory=Counter)
    strategies: Counter[str] = field(default_factory=Counter)
    unexplained: list[Unexplained] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether every difference has a class."""
        return not self.unexplained

    def render(self) -> str:
        """Render the totals, one per line."""
        by_side = Counter(dict.fromkeys(("descheduler", "trimtab"), 0))
        for (_, side), count in self.named.items():
            by_side[side] += count
        by_side.update(each.difference.side for each in self.unexplained)
        lines = [
            f"policies compared                    {self.policies} in {self.clusters} clusters",
            f"policies with equal evictions        {self.alike}",
            f"pods evicted by both                 {self.both}",
            f"pods evicted only by the descheduler {by_side['descheduler']}",
            f"pods evicted only by trimtab         {by_side['trimtab']}",
            f"unexplained differences              {len(self.unexplained)}",
        ]
        if self.unexplained:
            seeds = sorted({each.seed for each in self.unexplained})
            lines.append(f"seeds of these clusters              {', '.join(map(str, seeds))}")
        names = sorted({name for name, _ in self.named}, key=lambda name: (-self._count(name), name))
        if names:
            lines.append(f"{'class':<27} only descheduler  only trimtab")
        lines += [
            f"{name:<27} {self.named[name, 'descheduler']:16}  {self.named[name, 'trimtab']:12}" for name in names
        ]
        lines.append("pods evicted by both, by strategy:")
        lines += [f"{count:9} x {strategy}" for strategy, count in self.strategies.most_common()]
        return "\n".join(lines)

    def _count(self, name: str) -> int:
        return self.named[name, "descheduler"] + self.named[name, "trimtab"]
