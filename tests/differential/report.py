"""Disagreements, totals and progress of a run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TextIO

import yaml

from tests.differential.api_client import Manifest
from tests.differential.comparison import Difference

MIN_TOP_SHARE: Final = 0.95
"""Minimum fraction of decisions in which trimtab scores kube-scheduler's node highest."""


@dataclass(frozen=True)
class Disagreement:
    """A pod on which kube-scheduler and trimtab disagree.

    Attributes:
        seed: the seed of the cluster.
        objects: the manifests of the cluster, without the pod.
        pod: the pod's manifest.
        difference: what differs.
    """

    seed: int
    objects: list[Manifest]
    pod: Manifest
    difference: Difference

    def render(self) -> str:
        """Render the case as YAML, with both verdicts in comments."""
        comments = "\n".join(f"# {line}" for line in self.difference.text.splitlines())
        shown = [*filter(self._is_relevant, self.objects), self.pod]
        head = f"# {self.difference.kind}, cluster of seed {self.seed}, {len(shown) - 1} objects and the pod"
        return f"{head}\n{comments}\n{documents(shown)}"

    def _is_relevant(self, manifest: Manifest) -> bool:
        """Whether the case depends on an object. Most namespaces are irrelevant, and all exist in every cluster."""
        if manifest["kind"] != "Namespace":
            return True
        name = manifest["metadata"]["name"]
        rest = [obj for obj in (*self.objects, self.pod) if obj["kind"] != "Namespace"]
        return "namespaceSelector" in str(rest) or any(obj["metadata"].get("namespace") == name for obj in rest)


class _Plain(yaml.SafeDumper):
    """YAML without anchors and aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def documents(objects: Iterable[Manifest]) -> str:
    """Render objects as YAML documents, without the UIDs that the API server assigns."""
    rendered = []
    for manifest in objects:
        metadata = {name: value for name, value in manifest["metadata"].items() if name != "uid"}
        rendered.append({**manifest, "metadata": metadata})
    return yaml.dump_all(rendered, Dumper=_Plain, sort_keys=False, default_flow_style=False, width=120)


@dataclass
class Tally:
    """Totals of a run.

    Attributes:
        clusters: clusters loaded.
        compared: pods compared.
        draining: of ``compared``, pods in clusters in which nodes drain.
        unschedulable: pods that fit no node.
        with_choice: pods that fit several nodes.
        ranked: of ``with_choice``, pods whose nodes have different scores.
        in_top: of ``ranked``, pods whose node is among trimtab's highest-scored nodes.
        ties: of ``in_top``, pods for which trimtab scores several nodes highest.
        scores_compared: scores compared, each of one plugin on one node.
        reused: pods for which kube-scheduler reused the previous pod's result.
        reasons: how often kube-scheduler gave each reason.
        disagreements: pods on which both disagree.
    """

    clusters: int = 0
    compared: int = 0
    draining: int = 0
    unschedulable: int = 0
    with_choice: int = 0
    ranked: int = 0
    in_top: int = 0
    ties: int = 0
    scores_compared: int = 0
    reused: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    disagreements: list[Disagreement] = field(default_factory=list)

    def of_kinds(self, *kinds: str) -> list[Disagreement]:
        """Return the disagreements of these kinds."""
        return [found for found in self.disagreements if found.difference.kind in kinds]

    @property
    def top_share(self) -> float:
        """Fraction of ``ranked`` pods whose node is among trimtab's highest-scored nodes; 1.0 without any."""
        return self.in_top / self.ranked if self.ranked else 1.0

    @property
    def passed(self) -> bool:
        """Whether feasibility and reasons always agree, and choices at least as often as :data:`MIN_TOP_SHARE`."""
        return not self.of_kinds("feasibility", "reasons") and self.top_share >= MIN_TOP_SHARE

    def render(self) -> str:
        """Render the totals, one per line."""
        pods = f"{self.compared} in {self.clusters} clusters ({self.unschedulable} unschedulable)"
        lines = [
            f"pods compared                    {pods}",
            f"of them while nodes drain        {self.draining}",
            f"disagreements on feasibility     {len(self.of_kinds('feasibility'))}",
            f"disagreements on reasons         {len(self.of_kinds('reasons'))}",
            f"choices compared, scores differ  {self.ranked} of {self.with_choice} with a choice",
            f"within trimtab's top-scored set  {self.in_top} ({self.top_share:.2%}), {self.ties} of them tied",
            f"scores compared                  {self.scores_compared}",
            f"results reused by kube-scheduler {self.reused}",
        ]
        lines.append("plugins with different scores, and reasons of unschedulable pods:")
        differing = Counter(found.difference.plugin for found in self.of_kinds("scores"))
        lines += [f"{count:7} x {plugin} scores differ" for plugin, count in differing.most_common()]
        lines += [f"{count:7} x {reason}" for reason, count in self.reasons.most_common()]
        return "\n".join(lines)


class Progress:
    """Shows a progress bar on a terminal, and prints lines otherwise.

    Args:
        total: the number of units of the run.
        unit: the name of the units.
        every: units between two lines.
        stream: where to print.
    """

    def __init__(self, total: int, unit: str = "pods", *, every: int = 500, stream: TextIO = sys.stderr) -> None:
        self._total = total
        self._unit = unit
        self._every = every
        self._stream = stream
        self._last_printed = 0

    def update(self, number: int, found: str) -> None:
        """Show that ``number`` units are done, with a text about the results."""
        done = min(number, self._total)
        text = f"{done}/{self._total} {self._unit}, {found}"
        if self._stream.isatty():
            bar = "█" * (30 * done // self._total)
            print(f"\r{bar:░<30} {text}", end="\n" if done >= self._total else "", file=self._stream, flush=True)
        elif done - self._last_printed >= self._every or (done >= self._total > self._last_printed):
            self._last_printed = done
            print(text, file=self._stream, flush=True)
