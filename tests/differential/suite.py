"""Random clusters, and pods in them, judged by both."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection
from typing import Any, Final

from tests.builders import expression
from tests.differential.comparison import decisive, differences
from tests.differential.generator.chance import Chance
from tests.differential.generator.cluster import RandomCluster
from tests.differential.generator.evolution import evolve
from tests.differential.generator.names import NAMESPACES
from tests.differential.generator.theme import THEMES
from tests.differential.ours import Word
from tests.differential.report import Disagreement, Tally
from tests.differential.scheduler import Verdict
from tests.differential.server import Manifest, key
from tests.differential.world import World

PER_CLUSTER: Final = 100
"""Pods judged in one cluster before the next is made."""

_KEPT: Final = 15
_ANOTHER: Final = 500_009
_RESERVED: Final = 5
"""One in so many pods reserves its volumes."""
_RESERVING: Final = 1_000
_NAMED: Final = re.compile(rf'^\d+ |"[^"]*" ?|\{{[^}}]*\}}|(?:{"|".join(NAMESPACES)})/[\w-]+ ?')


class Examination:
    """Asks about pods in one cluster, which changes once.

    Args:
        world: where it is loaded.
        seed: what the cluster and the pods follow from; only ties are the scheduler's own to break.
        without: subjects that are left out, see :data:`~tests.differential.generator.cluster.SUBJECTS`.
        tally: what is counted.
    """

    def __init__(self, world: World, seed: int, *, without: Collection[str], tally: Tally) -> None:
        self._world = world
        self._seed = seed
        self._chance = Chance(seed + 1_000_003)
        self._cluster = RandomCluster(seed, without=without)
        self._without = without
        self._objects = {key(manifest): manifest for manifest in self._cluster.objects}
        self._ours = world.load(self._cluster.objects)
        self._tally = tally
        self._kept: dict[str, Manifest] = {}
        tally.clusters += 1

    def ask(self, number: int) -> None:
        """Ask about one more pod as it is, which may then stay, and at times about the same that may only go elsewhere.

        Where a pod fits somewhere the scheduler says nothing of the nodes where it does not: so it is asked again with
        all that fit, or all but one node, ruled out.
        """
        chance = self._chance.fork()
        manifest = self._cluster.asked(number)
        wants_to_stay = chance.one_in(5) and len(self._kept) < _KEPT
        word = self._judge(manifest, keep=wants_to_stay)
        if wants_to_stay and chance.one_in(4):
            for twin in range(chance.number(1, 4)):  # pods of one template, one after the other
                self._judge(_renamed(manifest, f"twin-{twin}"), keep=True)
        if chance.one_in(4):
            self._judge(pinned(manifest, chance.pick(*self._cluster.nodes)))
        elif chance.one_in(2) and 0 < len(word.fits) < len(self._cluster.nodes):
            self._judge(elsewhere(manifest, sorted(word.fits)))
        if self._kept and chance.one_in(8):
            self._forget(chance.pick(*sorted(self._kept)))

    def change(self) -> None:
        """Let a part of the cluster come, go and change; our picture follows, change by change."""
        other = RandomCluster(self._seed + _ANOTHER, without=self._without)
        gone, come = evolve(self._chance.fork(), self._objects.values(), other.objects)
        made = self._world.change(gone.values(), come.values())
        self._ours.change(gone.values(), made)
        self._objects = {name: obj for name, obj in self._objects.items() if name not in gone} | come

    def reserve(self, number: int) -> None:
        """Ask about so many pods with volumes in turn, each of which holds its place and its volumes from then on.

        The scheduler has them in its memory alone, as nobody binds their volumes: nothing can follow in this cluster.
        Where two pods share a claim it may get into its own way while it writes and drop the later one, to try again
        at some time: then this ends.
        """
        self._world.scheduler.let_bind_volumes(True)
        for each in range(number):
            manifest = self._cluster.asked(_RESERVING + each, THEMES["volumes"])
            verdict = self._world.scheduler.judge(manifest, keep=True)
            word = self._ours.judge(verdict.created)
            if differences(verdict, word) and self._world.scheduler.dropped():
                return
            self._compare(manifest, verdict, word)
            if verdict.node:
                self._keep(manifest, verdict.node)
                self._ours.reserve(verdict.created, verdict.node)

    def _judge(self, manifest: Manifest, *, keep: bool = False) -> Word:
        verdict = self._world.scheduler.judge(manifest, keep=keep)
        word = self._ours.judge(verdict.created)
        self._compare(manifest, verdict, word)
        if keep and verdict.bound:
            self._keep(manifest, verdict.node)
            self._ours.place(verdict.bound)
        return word

    def _keep(self, manifest: Manifest, node: str) -> None:
        self._kept[manifest["metadata"]["name"]] = {**manifest, "spec": {**manifest["spec"], "nodeName": node}}

    def _compare(self, manifest: Manifest, verdict: Verdict, word: Word) -> None:
        self._count(verdict, word)
        for difference in differences(verdict, word):
            there = [*self._objects.values(), *self._kept.values()]
            self._tally.disagreements.append(Disagreement(self._seed, there, manifest, difference))

    def _forget(self, name: str) -> None:
        manifest = self._kept.pop(name)
        self._world.server.delete(manifest)
        self._ours.forget(manifest)

    def _count(self, verdict: Verdict, word: Word) -> None:
        tally = self._tally
        tally.judged += 1
        tally.hinted += verdict.hinted
        if not verdict.node:
            tally.nowhere += 1
            tally.reasons.update(reasons(verdict.message))
        if len(verdict.scores) > 1:
            tally.chosen += 1
            tally.points += sum(map(len, verdict.scores.values()))
            if decisive(verdict):
                tally.decisive += 1
                tally.in_top += verdict.node in word.best
                tally.ties += verdict.node in word.best and len(word.best) > 1


def examine(
    world: World,
    *,
    pods: int,
    seed: int,
    without: Collection[str] = (),
    per_cluster: int = PER_CLUSTER,
    tell: Callable[[Tally], None] = lambda _tally: None,
) -> Tally:
    """Judge so many pods, in as many clusters as that takes, of one seed after the other.

    Args:
        world: a control plane; what is in it is taken away.
        pods: how many at least.
        seed: of the first cluster.
        without: subjects that are left out.
        per_cluster: pods judged in one cluster.
        tell: called with what was counted so far.
    """
    tally = Tally()
    while tally.judged < pods:
        before = tally.judged
        examination = Examination(world, seed + tally.clusters, without=without, tally=tally)
        number = 0
        changed = False
        while tally.judged < min(
            pods, before + per_cluster - per_cluster // 10
        ):  # a question may be about more than one pod
            examination.ask(number)
            number += 1
            tell(tally)
            if not changed and tally.judged >= before + per_cluster // 2:
                examination.change()
                changed = True
        if "volumes" not in without:
            examination.reserve(min(per_cluster // _RESERVED, pods - tally.judged))
            tell(tally)
    return tally


def reasons(message: str) -> list[str]:
    """What a message says of nodes or of the pod, without numbers and names: for counting what was met."""
    told = re.split(r"no new claims|preemption:|\. not found", message)[0]
    text = told.partition("nodes are available:")[2].strip().rstrip(".") or told
    return [_NAMED.sub("", part).strip() for part in text.split(", ")]


def pinned(manifest: Manifest, name: str) -> Manifest:
    """The pod with one node alone to run on."""
    return _narrowed(manifest, expression("metadata.name", "In", name))


def elsewhere(manifest: Manifest, names: list[str]) -> Manifest:
    """The pod with all nodes but these to run on."""
    return _narrowed(manifest, *(expression("metadata.name", "NotIn", name) for name in names))


def _narrowed(manifest: Manifest, *fields: dict[str, Any]) -> Manifest:
    found = _renamed(manifest, "again")  # the pod itself may have stayed
    affinity = found["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in required.setdefault("nodeSelectorTerms", [{}]):
        term.setdefault("matchFields", []).extend(fields)
    return found


def _renamed(manifest: Manifest, suffix: str) -> Manifest:
    found = copy.deepcopy(manifest)
    found["metadata"]["name"] += f"-{suffix}"
    return found
