"""The order of victims: priority, QoS class, gain, size, age, name."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import pod
from tests.unit.cluster.worlds import Maker, makers
from trimtab.descheduling.order import victim_order


def test_the_least_valuable_goes_first():
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


def test_gain_weighs_less_than_priority_and_qos_and_more_than_size():
    small, large = pod("small").cpu("1m").build(), pod("large").cpu("2").build()
    assert victim_order(large, 2.0) < victim_order(small, 1.0)
    assert victim_order(small, 1.0) < victim_order(large, 1.0)
    assert victim_order(pod("none").build(), 0.0) < victim_order(large, 9.0)
    assert victim_order(large, 0.0) < victim_order(pod("high").priority(1).build(), 9.0)


@given(st.lists(makers, min_size=2, max_size=6))
def test_no_two_pods_are_equal(several):
    pods = [Maker.pod(make, f"p{number}") for number, make in enumerate(several)]
    assert len({victim_order(each) for each in pods}) == len(pods)


def test_of_equals_those_go_first_that_do_not_wish_to_stay():
    wish = {"descheduler.alpha.kubernetes.io/prefer-no-eviction": "true"}
    wishing, other = pod("a").annotations(wish).build(), pod("b").cpu("1m").build()
    equal = pod("c").build()
    assert victim_order(equal, 0.0) < victim_order(wishing, 9.0)
    assert victim_order(wishing, 0.0) < victim_order(other, 9.0)
