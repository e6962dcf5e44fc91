"""Clusters one after the other, policies one after the other, and a name for every difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tests.descheduler_differential.classes.table import name_of
from tests.descheduler_differential.facts import Case, Difference
from tests.descheduler_differential.generator.cluster import RandomCluster
from tests.descheduler_differential.generator.policies import drawn_plugins, random_policy
from tests.descheduler_differential.ours import ours
from tests.descheduler_differential.report import Tally, Unexplained, words
from tests.descheduler_differential.theirs import INTERVAL, Descheduler
from tests.descheduler_differential.world import World
from tests.differential.generator.chance import Chance
from tests.differential.server import Manifest

POLICIES: Final = 4
"""Policies that are asked about in one cluster."""

_DRAWN: Final = 1_000_003
_PATIENT: Final = 2.0
"""Seconds between cycles for another look: their copy of the cluster is complete by then, however slow the machine."""


def policies_of(seed: int, number: int) -> list[Manifest]:
    """The policies that are asked about in the cluster of a seed."""
    chance = Chance(seed + _DRAWN)
    return [random_policy(chance.fork(), drawn_plugins(chance.fork())) for _ in range(number)]


class Examination:
    """Asks about policies in one cluster, which stays as it is.

    Args:
        world: where it is loaded.
        descheduler: who is compared with.
        objects: the cluster.
    """

    def __init__(self, world: World, descheduler: Descheduler, objects: Sequence[Manifest]) -> None:
        self._descheduler = descheduler
        self._objects = list(objects)
        self._snapshot, self._now = world.load(self._objects)
        self._pods = dict(self._snapshot.pods)

    def ask(self, policy: Manifest, *, interval: float = INTERVAL) -> Case:
        """Both answers."""
        there = {pod.key: pod for pod in self._snapshot.pods.values()}
        assert there == self._pods, f"planning has left something behind: {sorted(there.keys() ^ self._pods.keys())}"
        mine = ours(self._snapshot, self._now, policy)
        theirs = {each.pod: each for each in self._descheduler.evictions(policy, interval=interval)}
        return Case(self._objects, policy, mine, theirs)

    def sure(self, policy: Manifest) -> tuple[Case, list[tuple[Difference, str | None]]]:
        """Both answers and the name of each difference; asked again, slowly, where one has none."""
        case = self.ask(policy)
        found = _names(case)
        if any(name is None for _, name in found):
            case = self.ask(policy, interval=_PATIENT)
            found = _names(case)
        return case, found


def _names(case: Case) -> list[tuple[Difference, str | None]]:
    return [(difference, name_of(case, difference)) for difference in case.differences]


def examine(
    world: World,
    descheduler: Descheduler,
    *,
    clusters: int,
    seed: int,
    policies: int = POLICIES,
    tell: Callable[[Tally], None] = lambda _tally: None,
) -> Tally:
    """Compare both in so many clusters, of one seed after the other.

    Args:
        world: a control plane; what is in it is taken away.
        descheduler: who is compared with.
        clusters: how many.
        seed: of the first cluster.
        policies: how many in each.
        tell: called with what was counted so far.
    """
    tally = Tally()
    for number in range(seed, seed + clusters):
        objects = RandomCluster(number).objects
        examination = Examination(world, descheduler, objects)
        tally.clusters += 1
        for policy in policies_of(number, policies):
            case, found = examination.sure(policy)
            _count(tally, case, found)
            for difference, name in found:
                if name is None:
                    said = words(case, difference)
                    tally.unexplained.append(Unexplained(number, objects, policy, difference, said))
        tell(tally)
    return tally


def _count(tally: Tally, case: Case, found: list[tuple[Difference, str | None]]) -> None:
    both = set(case.theirs) & set(case.ours.moves)
    tally.policies += 1
    tally.alike += not found
    tally.both += len(both)
    tally.strategies.update(case.theirs[name].strategy for name in both)
    tally.named.update((name, difference.side) for difference, name in found if name is not None)
