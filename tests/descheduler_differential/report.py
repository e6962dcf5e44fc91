"""What came of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.descheduler_differential.facts import Case, Difference
from tests.differential.report import documents
from tests.differential.server import Manifest


@dataclass(frozen=True)
class Unexplained:
    """A difference that is of no class: one of both is wrong, or the table lacks a line.

    Attributes:
        seed: of the cluster.
        objects: the cluster.
        policy: in descheduler/v1alpha2.
        difference: which pod, and who would evict it.
        words: what we say of it.
    """

    seed: int
    objects: list[Manifest]
    policy: Manifest
    difference: Difference
    words: str

    @property
    def sort(self) -> str:
        """What is alike: the strategy and the side."""
        return f"{self.difference.strategy}-{self.difference.side}"

    def told(self) -> str:
        """As YAML, the policy last, with both words in comments."""
        only = "the descheduler" if self.difference.side == "theirs" else "we"
        shown = [each for each in self.objects if self._telling(each)]
        head = f"# cluster of seed {self.seed}, {len(shown)} objects and the policy\n"
        head += f"# only {only} would evict {self.difference.pod} ({self.difference.strategy})\n# we: {self.words}\n"
        return f"{head}{documents([*shown, {'metadata': {}, **self.policy}])}"

    def _telling(self, manifest: Manifest) -> bool:
        """Whether an object has to be shown: not a namespace without pods, nor its volume that nobody uses."""
        if manifest["kind"] != "Namespace":
            return True
        name = manifest["metadata"]["name"]
        return any(each["metadata"].get("namespace") == name for each in self.objects if each["kind"] == "Pod")


def words(case: Case, difference: Difference) -> str:
    """What our plan says of the pod."""
    move = case.ours.moves.get(difference.pod)
    if move is not None:
        return f"{move.reason}, to {move.target or 'nowhere'}: {move.message}"
    kept = case.kept(difference)
    return f"{kept.reason}: {kept.message}" if kept is not None else "not considered"


@dataclass
class Tally:
    """What was counted.

    Attributes:
        clusters: loaded.
        policies: that both were asked about.
        alike: of these, those where both evict the same pods.
        both: pods that both evict.
        named: differences by class and side.
        unexplained: differences of no class.
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
        """Whether every difference has a name."""
        return not self.unexplained

    def told(self) -> str:
        """The figures, one a line."""
        by_side = Counter(dict.fromkeys(("theirs", "ours"), 0))
        for (_, side), count in self.named.items():
            by_side[side] += count
        by_side.update(each.difference.side for each in self.unexplained)
        lines = [
            f"policies asked about      {self.policies} in {self.clusters} clusters",
            f"the same pods evicted     {self.alike} policies",
            f"pods that both evict      {self.both}",
            f"pods that only they evict {by_side['theirs']}",
            f"pods that only we evict   {by_side['ours']}",
            f"differences unexplained   {len(self.unexplained)}",
        ]
        if self.unexplained:
            seeds = sorted({each.seed for each in self.unexplained})
            lines.append(f"in the clusters of seeds  {', '.join(map(str, seeds))}")
        names = sorted({name for name, _ in self.named}, key=lambda name: (-self._count(name), name))
        if names:
            lines.append(f"{'class':<27} only they  only we")
        lines += [f"{name:<27} {self.named[name, 'theirs']:9}  {self.named[name, 'ours']:7}" for name in names]
        lines.append("pods that both evict, by strategy:")
        lines += [f"{count:9} x {strategy}" for strategy, count in self.strategies.most_common()]
        return "\n".join(lines)

    def _count(self, name: str) -> int:
        return self.named[name, "theirs"] + self.named[name, "ours"]
