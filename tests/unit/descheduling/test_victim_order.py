"""Which pod goes first."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import pod
from tests.unit.cluster.worlds import Maker, makers
from trimtab.descheduling.planning.node_usage import TargetExcess, UtilizationLevel
from trimtab.descheduling.planning.victim_order import VictimQueue, rank, size, victim_order
from trimtab.disruption.protections import PREFER_NO_EVICTION_KEY
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Pod


def test_lowest_rank_is_evicted_first():
    def burstable(name: str):
        return pod(name).cpu("100m")

    expected = [
        pod("negative").priority(-5).cpu("4", "4").memory("1Gi", "1Gi"),
        pod("best-effort-young").created("2026-02-01T00:00:00Z"),
        pod("best-effort-old").created("2026-01-01T00:00:00Z"),
        pod("best-effort-a"),
        pod("best-effort-b").priority(0),
        burstable("small").memory("1Mi"),
        burstable("more-memory").memory("2Mi"),
        pod("more-cpu").cpu("200m"),
        pod("guaranteed").cpu("1m", "1m").memory("1Mi", "1Mi"),
        pod("high").priority(7),
    ]
    pods = [each.build() for each in expected]
    shuffled = random.Random(3).sample(pods, len(pods))
    assert [each.name for each in sorted(shuffled, key=victim_order)] == [each.name for each in pods]


def test_gain_ranks_between_qos_and_size():
    small, large = pod("small").cpu("1m").build(), pod("large").cpu("2").build()
    assert victim_order(large, 2.0) < victim_order(small, 1.0)
    assert victim_order(small, 1.0) < victim_order(large, 1.0)
    assert victim_order(pod("none").build(), 0.0) < victim_order(large, 9.0)
    assert victim_order(large, 0.0) < victim_order(pod("high").priority(1).build(), 9.0)


@given(st.lists(makers, min_size=2, max_size=6))
def test_no_two_pods_are_equal(several):
    pods = [Maker.pod(make, f"p{number}") for number, make in enumerate(several)]
    assert len({victim_order(each) for each in pods}) == len(pods)


def test_pods_preferring_no_eviction_come_last():
    preference = {"descheduler.alpha.kubernetes.io/prefer-no-eviction": "true"}
    wishing, other = pod("a").annotations(preference).build(), pod("b").cpu("1m").build()
    equal = pod("c").build()
    assert victim_order(equal, 0.0) < victim_order(wishing, 9.0)
    assert victim_order(wishing, 0.0) < victim_order(other, 9.0)


def pods(chance: random.Random, number: int) -> list[Pod]:
    """Of few sizes, so that many are alike, some with a wish to stay."""
    shapes = [
        pod("x").cpu(f"{chance.choice([100, 200, 300])}m").memory(f"{chance.choice([0, 1, 2]) or 1}Mi").build().spec
        for _ in range(4)
    ]
    made = []
    for index in range(number):
        annotations = Labels({PREFER_NO_EVICTION_KEY: "true"}) if chance.random() < 0.2 else Labels()
        one = pod(f"p{index:02}").on("n1").build()
        changed = {
            "spec": chance.choice(shapes),
            "annotations": annotations,
            "created": chance.choice([None, 1.0, 2.0]),
        }
        made.append(msgspec.structs.replace(one, **changed))
    return made


def amounts(one: Pod) -> tuple[int, ...]:
    return one.spec.requests.get("cpu", 0), one.spec.requests.get("memory", 0), 1


def excess(column: int, amount: int) -> TargetExcess:
    return TargetExcess(UtilizationLevel(str(column), column, None, 50.0), 60.0, amount)


def naive(left: list[Pod], over: list[TargetExcess]) -> Pod | None:
    """The first, by size, of those that end the excess with the least, else of those that have the most."""
    for each in over:
        column, wanted = each.level.column, each.amount
        ending = [one for one in left if amounts(one)[column] >= wanted]
        if ending:
            return min(ending, key=lambda one: (amounts(one)[column], size(one)))
        some = [one for one in left if amounts(one)[column] > 0]
        if some:
            return min(some, key=lambda one: (-amounts(one)[column], size(one)))
    return None


@given(st.integers(0, 2**32), st.integers(0, 20), st.booleans())
def test_next_victim_equals_full_scan(seed, number, of_spec):
    chance = random.Random(seed)
    candidates = pods(chance, number)
    groups = VictimQueue(amounts, of_spec=of_spec).groups(candidates)
    ranks = sorted({rank(one) for one in candidates})
    assert len(groups) == len(ranks)
    for key, group in zip(ranks, groups, strict=True):
        left = [one for one in candidates if rank(one) == key]
        for _ in range(len(left) // 2 + 1):
            over = [
                excess(chance.choice([0, 1]), chance.choice([1, 150, 1 << 20])) for _ in range(chance.choice([1, 2]))
            ]
            expected = naive(left, over)
            found = group.take(over)
            assert (found and found.pod) == expected
            if expected is None:
                break
            left.remove(expected)
        assert [victim.pod for victim in group] == sorted(left, key=size)
        assert all(victim.amounts == amounts(victim.pod) for victim in group)
        assert bool(group) == bool(left)
