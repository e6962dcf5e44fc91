"""Both words on a pod, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tests.differential.ours import Word
from tests.differential.scheduler import Verdict

Kind = Literal["feasibility", "reasons", "choice", "scores"]

_ERROR: Final = 'running "'

KINDS: Final[tuple[Kind, ...]] = ("feasibility", "reasons", "choice", "scores")


@dataclass(frozen=True)
class Difference:
    """One thing in which both differ.

    Attributes:
        kind: where a pod can run; why it cannot; that the scheduler chose a node that we don't score highest; points.
        text: what each says.
        plugin: the one whose points differ; empty where it is not about points.
    """

    kind: Kind
    text: str
    plugin: str = ""


def differences(theirs: Verdict, ours: Word) -> list[Difference]:
    """In what the scheduler and we differ: nothing, if all is well."""
    fits = theirs.fits
    if fits is None:  # it looked at one node only
        return [] if theirs.node in ours.fits else [_feasibility(frozenset({theirs.node}), theirs, ours)]
    if fits != ours.fits:
        return [_feasibility(fits, theirs, ours)]
    if not fits:
        if theirs.message.startswith(ours.message) or _both_in_error(theirs, ours):
            return []
        return [Difference("reasons", f"kube-scheduler: {theirs.message}\nwe: {ours.message}")]
    found = []
    if theirs.node not in ours.best:
        best = ", ".join(sorted(ours.best))
        points = {node: sum(scores.values()) for node, scores in theirs.scores.items()}
        text = f"kube-scheduler chose {theirs.node} of {_told(points)}\nwe: {best} of {_told(ours.totals)}"
        found.append(Difference("choice", text))
    if theirs.scores:
        found += _scores(theirs, ours)
    return found


def decisive(theirs: Verdict) -> bool:
    """Whether the scheduler had nodes to choose from that it did not score alike."""
    return len({sum(points.values()) for points in theirs.scores.values()}) > 1


def _both_in_error(theirs: Verdict, ours: Word) -> bool:
    """Whether a plugin's error on a node ends the search for both: upon which node first, is chance."""
    return theirs.message.startswith(_ERROR) and ours.message.startswith(_ERROR)


def _feasibility(fits: frozenset[str], theirs: Verdict, ours: Word) -> Difference:
    only_they, only_we = sorted(fits - ours.fits), sorted(ours.fits - fits)
    said = [f"only kube-scheduler lets it on {', '.join(only_they)}" if only_they else ""]
    said.append(f"only we let it on {', '.join(only_we)}" if only_we else "")
    words = [
        f"kube-scheduler: {theirs.message}" if theirs.message else "",
        f"we: {ours.message}" if ours.message else "",
    ]
    return Difference("feasibility", "\n".join(filter(None, [*said, *words])))


def _scores(theirs: Verdict, ours: Word) -> list[Difference]:
    """The plugins whose points differ on some node; one that we don't have gives nothing."""
    plugins = sorted({plugin for points in (*theirs.scores.values(), *ours.scores.values()) for plugin in points})
    found = []
    for plugin in plugins:
        said = {node: points.get(plugin, 0) for node, points in theirs.scores.items()}
        own = {node: points.get(plugin, 0) for node, points in ours.scores.items()}
        if said != own:
            text = f"{plugin}\nkube-scheduler: {_told(said)}\nwe: {_told(own)}"
            found.append(Difference("scores", text, plugin))
    return found


def _told(points: dict[str, int]) -> str:
    return " ".join(f"{node}={number}" for node, number in sorted(points.items()))
