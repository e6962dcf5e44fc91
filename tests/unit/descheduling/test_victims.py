"""Victims: the pod that goes next is the one that looking through all of them would find."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import pod
from trimtab.descheduling.order import rank, size
from trimtab.descheduling.utilization import Excess, Level
from trimtab.descheduling.victims import Lineup
from trimtab.disruption.protections.no_eviction_annotation import KEY
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Pod


def pods(chance: random.Random, number: int) -> list[Pod]:
    """Of few sizes, so that many are alike, some with a wish to stay."""
    shapes = [
        pod("x").cpu(f"{chance.choice([100, 200, 300])}m").memory(f"{chance.choice([0, 1, 2]) or 1}Mi").build().spec
        for _ in range(4)
    ]
    made = []
    for index in range(number):
        annotations = Labels({KEY: "true"}) if chance.random() < 0.2 else Labels()
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


def excess(column: int, amount: int) -> Excess:
    return Excess(Level(str(column), column, None, 50.0), 60.0, amount)


def naive(left: list[Pod], over: list[Excess]) -> Pod | None:
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
def test_the_next_one_is_found_as_by_looking_through_all(seed, number, of_spec):
    chance = random.Random(seed)
    candidates = pods(chance, number)
    groups = Lineup(amounts, of_spec=of_spec).groups(candidates)
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
