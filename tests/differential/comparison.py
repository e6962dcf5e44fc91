"""Compares trimtab's verdict on a pod with kube-scheduler's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tests.differential.kube_scheduler import Verdict
from tests.differential.trimtab_placer import TrimtabVerdict

Kind = Literal["feasibility", "reasons", "choice", "scores"]

_ERROR: Final = 'running "'

KINDS: Final[tuple[Kind, ...]] = ("feasibility", "reasons", "choice", "scores")


@dataclass(frozen=True)
class Difference:
    """One difference between kube-scheduler's verdict and trimtab's.

    Attributes:
        kind: ``feasibility`` (the nodes that fit), ``reasons`` (the message if none fits), ``choice`` (kube-scheduler
            chose a node that trimtab does not score highest) or ``scores``.
        text: both values, for people.
        plugin: the score plugin whose scores differ; empty for other kinds.
    """

    kind: Kind
    text: str
    plugin: str = ""


def differences(expected: Verdict, actual: TrimtabVerdict) -> list[Difference]:
    """List the differences between the two verdicts on one pod; empty if they agree."""
    fits = expected.fits
    if fits is None:  # kube-scheduler filtered one node only
        return [] if expected.node in actual.fits else [_feasibility(frozenset({expected.node}), expected, actual)]
    if fits != actual.fits:
        return [_feasibility(fits, expected, actual)]
    if not fits:
        if expected.message.startswith(actual.message) or _both_in_error(expected, actual):
            return []
        return [Difference("reasons", f"kube-scheduler: {expected.message}\ntrimtab: {actual.message}")]
    found = []
    if expected.node not in actual.best:
        best = ", ".join(sorted(actual.best))
        totals = {node: sum(by_plugin.values()) for node, by_plugin in expected.scores.items()}
        text = f"kube-scheduler chose {expected.node} of {_format_scores(totals)}\n"
        text += f"trimtab: {best} of {_format_scores(actual.totals)}"
        found.append(Difference("choice", text))
    if expected.scores:
        found += _scores(expected, actual)
    return found


def scores_differ(expected: Verdict) -> bool:
    """Whether kube-scheduler gave at least two feasible nodes different scores."""
    return len({sum(by_plugin.values()) for by_plugin in expected.scores.values()}) > 1


def _both_in_error(expected: Verdict, actual: TrimtabVerdict) -> bool:
    """Whether a plugin's error ended the search in both; which node fails first is random."""
    return expected.message.startswith(_ERROR) and actual.message.startswith(_ERROR)


def _feasibility(fits: frozenset[str], expected: Verdict, actual: TrimtabVerdict) -> Difference:
    only_expected, only_actual = sorted(fits - actual.fits), sorted(actual.fits - fits)
    lines = [f"feasible only in kube-scheduler: {', '.join(only_expected)}" if only_expected else ""]
    lines.append(f"feasible only in trimtab: {', '.join(only_actual)}" if only_actual else "")
    messages = [
        f"kube-scheduler: {expected.message}" if expected.message else "",
        f"trimtab: {actual.message}" if actual.message else "",
    ]
    return Difference("feasibility", "\n".join(filter(None, [*lines, *messages])))


def _scores(expected: Verdict, actual: TrimtabVerdict) -> list[Difference]:
    """One difference per plugin whose scores differ on some node; a missing plugin scores 0."""
    plugins = sorted(
        {plugin for by_plugin in (*expected.scores.values(), *actual.scores.values()) for plugin in by_plugin}
    )
    found = []
    for plugin in plugins:
        wanted = {node: by_plugin.get(plugin, 0) for node, by_plugin in expected.scores.items()}
        found_scores = {node: by_plugin.get(plugin, 0) for node, by_plugin in actual.scores.items()}
        if wanted != found_scores:
            text = f"{plugin}\nkube-scheduler: {_format_scores(wanted)}\ntrimtab: {_format_scores(found_scores)}"
            found.append(Difference("scores", text, plugin))
    return found


def _format_scores(scores: dict[str, int]) -> str:
    return " ".join(f"{node}={number}" for node, number in sorted(scores.items()))
