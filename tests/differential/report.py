"""What came of a run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TextIO

import yaml

from tests.differential.comparison import Difference
from tests.differential.server import Manifest

SHARE: Final = 0.95
"""How often at least the scheduler's choice has to be among the nodes that we score highest."""


@dataclass(frozen=True)
class Disagreement:
    """A pod of which both don't say the same.

    Attributes:
        seed: of the cluster.
        objects: the cluster without the pod.
        pod: the pod.
        difference: in what they differ.
    """

    seed: int
    objects: list[Manifest]
    pod: Manifest
    difference: Difference

    def told(self) -> str:
        """As YAML, with both words in comments."""
        said = "\n".join(f"# {line}" for line in self.difference.text.splitlines())
        shown = [*filter(self._telling, self.objects), self.pod]
        head = f"# {self.difference.kind}, cluster of seed {self.seed}, {len(shown) - 1} objects and the pod"
        return f"{head}\n{said}\n{documents(shown)}"

    def _telling(self, manifest: Manifest) -> bool:
        """Whether an object has to be shown: namespaces always exist, and few cases are about their labels."""
        if manifest["kind"] != "Namespace":
            return True
        name = manifest["metadata"]["name"]
        rest = [obj for obj in (*self.objects, self.pod) if obj["kind"] != "Namespace"]
        return "namespaceSelector" in str(rest) or any(obj["metadata"].get("namespace") == name for obj in rest)


class _Plain(yaml.SafeDumper):
    """YAML in which nothing refers to something else."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def documents(objects: Iterable[Manifest]) -> str:
    """Objects as YAML, without the UIDs that the server gives anyway."""
    told = []
    for manifest in objects:
        metadata = {name: value for name, value in manifest["metadata"].items() if name != "uid"}
        told.append({**manifest, "metadata": metadata})
    return yaml.dump_all(told, Dumper=_Plain, sort_keys=False, default_flow_style=False, width=120)


@dataclass
class Tally:
    """What was counted.

    Attributes:
        clusters: loaded.
        judged: pods.
        nowhere: pods that fitted nowhere.
        chosen: pods that had several nodes to choose from.
        decisive: of these, those whose nodes were not all scored alike.
        in_top: of these, those whose node is among those that we score highest.
        ties: of these, those where we score several highest.
        points: single scores compared, each of one plugin on one node.
        hinted: pods for which the scheduler took over the result of the pod before.
        disagreements: pods of which both say different things.
    """

    clusters: int = 0
    judged: int = 0
    nowhere: int = 0
    chosen: int = 0
    decisive: int = 0
    in_top: int = 0
    ties: int = 0
    points: int = 0
    hinted: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    disagreements: list[Disagreement] = field(default_factory=list)

    def of(self, *kinds: str) -> list[Disagreement]:
        """The disagreements of these kinds."""
        return [found for found in self.disagreements if found.difference.kind in kinds]

    @property
    def share(self) -> float:
        """How often the scheduler's choice is among the nodes that we score highest, where scores differ."""
        return self.in_top / self.decisive if self.decisive else 1.0

    @property
    def passed(self) -> bool:
        """Whether no pod may run elsewhere than we say, and choices are foretold often enough."""
        return not self.of("feasibility", "reasons") and self.share >= SHARE

    def told(self) -> str:
        """The figures, one a line."""
        lines = [
            f"pods judged                      {self.judged} in {self.clusters} clusters ({self.nowhere} fit nowhere)",
            f"disagreements on feasibility     {len(self.of('feasibility'))}",
            f"disagreements on reasons         {len(self.of('reasons'))}",
            f"choices compared, scores differ  {self.decisive} of {self.chosen} with a choice",
            f"within our top-scored set        {self.in_top} ({self.share:.2%}), in {self.ties} of them we see a tie",
            f"single scores compared           {self.points}",
            f"results reused by the scheduler  {self.hinted}",
        ]
        lines.append("of pods that fit nowhere, or of scores:")
        differing = Counter(found.difference.plugin for found in self.of("scores"))
        lines += [f"{count:7} x {plugin} scored otherwise" for plugin, count in differing.most_common()]
        lines += [f"{count:7} x {reason}" for reason, count in self.reasons.most_common()]
        return "\n".join(lines)


class Progress:
    """A bar on a terminal, a line now and then elsewhere.

    Args:
        total: when it is done.
        unit: of what.
        every: how many of them make another line.
    """

    def __init__(self, total: int, unit: str = "pods", *, every: int = 500, stream: TextIO = sys.stderr) -> None:
        self._total = total
        self._unit = unit
        self._every = every
        self._stream = stream
        self._told = 0

    def at(self, number: int, found: str) -> None:
        """Show how far it is, and what was found."""
        done = min(number, self._total)
        text = f"{done}/{self._total} {self._unit}, {found}"
        if self._stream.isatty():
            bar = "█" * (30 * done // self._total)
            print(f"\r{bar:░<30} {text}", end="\n" if done >= self._total else "", file=self._stream, flush=True)
        elif done - self._told >= self._every or (done >= self._total > self._told):
            self._told = done
            print(text, file=self._stream, flush=True)
