"""When nodes that fail are tainted, against upstream's timeline (v1.36) and what is promised beyond it."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

from tests.fixtures.golden import Golden
from tests.unit.tainting.nodes import DEFAULTS, World, a_node, no_execute_of
from trimtab.api import reasons

DETECTED = 52.0
"""The last renewal was at 0 and the grace period is 50 s; then the API server is asked, and answers a second later."""


def cluster(*counts: int) -> list[str]:
    """Names of nodes: ``a01`` is the first of the first zone."""
    return [f"{zone}{place:02}" for zone, count in zip("abcdef", counts, strict=False) for place in range(1, count + 1)]


def world(*counts: int, settings=DEFAULTS) -> World:
    return World([a_node(name, zone=name[0]) for name in cluster(*counts)], settings=settings)


def of(zone: str, many: int) -> list[str]:
    return [f"{zone}{place:02}" for place in range(1, many + 1)]


@pytest.mark.parametrize(
    ("counts", "failing", "times"),
    [
        ((10,), of("a", 1), [DETECTED]),
        ((30,), of("a", 10), [DETECTED + 10 * place for place in range(10)]),
        ((5, 5, 5), of("a", 5), [DETECTED + 10 * place for place in range(5)]),
        ((5, 5, 5), [*of("a", 5), *of("b", 5)], [DETECTED + 10 * place for place in range(5) for _ in range(2)]),
        ((5, 5), [*of("a", 5), "b01"], [DETECTED, *(DETECTED + 10 * place for place in range(5))]),
        ((5, 5, 5), [*of("a", 5), *of("b", 5), *of("c", 5)], []),
        ((1,), ["a01"], []),
        ((4,), of("a", 4), []),
        ((5,), of("a", 3), []),
        ((4,), of("a", 2), [DETECTED, DETECTED + 10]),
        ((60,), of("a", 40), [DETECTED, DETECTED + 100, DETECTED + 200]),
        ((50,), of("a", 40), []),
    ],
    ids=[
        "one node of ten",
        "ten nodes of thirty, one every ten seconds",
        "one zone of three, at the rate of a zone that is well",
        "two zones of three, each at its own rate",
        "one zone of two, and a node of the other",
        "all three zones: nothing",
        "a cluster of one node: nothing",
        "the only zone: nothing",
        "three of five, a small zone in partial disruption: nothing",
        "two of four are too few for a partial disruption",
        "forty of sixty, a large zone in partial disruption",
        "forty of fifty are not a large zone",
    ],
)
def test_nodes_are_tainted_at_upstream_times(counts, failing, times):
    live = world(*counts)
    live.fail(*failing)
    live.run(270)
    assert [second for _, second in live.tainted] == times
    assert {name for name, _ in live.unknown} == set(failing)
    assert not live.freed


def test_nodes_are_tainted_in_order_of_failure():
    live = world(10)
    order = ["a07", "a03", "a05", "a01"]
    for name in order:
        live.fail(name)
        live.run(live.second + 10)
    live.run(200)
    assert [name for name, _ in live.tainted] == order


def test_recovered_waiting_node_is_not_tainted():
    live = world(10)
    live.fail(*of("a", 3))
    live.run(55)
    live.recover("a02")
    live.run(120)
    assert live.tainted == [("a01", DETECTED), ("a03", DETECTED + 10)]


def test_recovered_node_loses_its_taints_at_once():
    live = world(10)
    live.fail("a01")
    live.run(100)
    live.recover("a01")
    live.run(101)
    assert live.freed == [("a01", 101)]
    assert live.nodes["a01"].taints == ()


def test_last_failed_zone_removes_all_taints():
    live = world(3, 3)
    live.fail(*of("a", 3))
    live.run(75)
    assert [name for name, _ in live.tainted] == ["a01", "a02", "a03"]
    live.fail(*of("b", 3))
    live.run(140)
    assert {name for name, _ in live.freed} == set(of("a", 3))
    assert not any(no_execute_of(node) for node in live.nodes.values())
    assert live.plan.memory.all_down


def test_gradual_outage_of_all_nodes_taints_none():
    live = world(4, 4)
    for name in cluster(4, 4):
        live.fail(name)
        live.leases[name] = live._lease(name, live.second)
        live.run(live.second + 1)
    live.run(300)
    assert not live.tainted
    assert len(live.unknown) == 8


def falling_silent(live: World, names: list[str]) -> World:
    """One a second, each right after a renewal."""
    for name in names:
        live.fail(name)
        live.leases[name] = live._lease(name, live.second)
        live.run(live.second + 1)
    return live


@pytest.mark.parametrize("grace", ["50s", "16s"], ids=["the default grace period", "one shorter than four renewals"])
def test_gradual_outage_of_a_small_zone_taints_none(grace):
    live = world(5, 5, settings=replace(DEFAULTS, node_monitor_grace_period=grace))
    falling_silent(live, of("a", 4)).run(300)
    assert not live.tainted
    assert len(live.unknown) == 4
    assert {waiting.reason for waiting in live.plan.waiting} == {reasons.ZONE_DISRUPTED}


def test_recovered_nodes_in_doubt_do_not_block():
    live = falling_silent(world(5, 5), of("a", 4))
    live.run(50)
    live.recover("a02", "a03", "a04")
    live.run(120)
    assert live.tainted == [("a01", DETECTED)]


def test_few_nodes_in_doubt_do_not_block():
    live = falling_silent(world(10, 5), of("a", 3))
    live.run(120)
    assert [name for name, _ in live.tainted] == of("a", 3)
    assert live.tainted[0][1] == DETECTED


def test_grace_periods_restart_after_outage_of_all_zones():
    live = world(3, 3)
    live.fail(*cluster(3, 3))
    live.run(100)
    live.recover("a01")
    live.run(100 + 49)
    assert not live.tainted
    live.recover("a02", "a03", "b01", "b02")
    live.run(200)
    assert live.tainted == [("b03", 101 + 50)]


def test_no_probe_within_grace_period_after_outage_of_all_zones():
    live = World([a_node(name, ready="False", zone=name[0]) for name in cluster(2, 2)])
    live.fail("a01")
    live.run(45)
    live.recover("b01")
    live.run(120)
    assert live.asked[0] == ("a01", 46 + 50 + 1)


def test_full_disruption_rate_zero_holds_a_zone():
    live = world(3, 3, settings=replace(DEFAULTS, full_disruption_eviction_rate=0.0))
    live.fail(*of("a", 3))
    live.run(300)
    assert [name for name, _ in live.tainted] == []  # all three were found together, so no state lies between
    assert {waiting.reason for waiting in live.plan.waiting} == {reasons.ZONE_DISRUPTED}


def test_waiting_nodes_have_due_time_and_reason(golden: Golden):
    live = world(10)
    live.fail(*of("a", 3))
    live.run(DETECTED)
    assert [(each.node, each.place, each.reason) for each in live.plan.waiting] == [
        ("a02", 1, reasons.EVICTION_RATE_LIMITED),
        ("a03", 2, reasons.EVICTION_RATE_LIMITED),
    ]
    assert [each.due - live.plan.now for each in live.plan.waiting] == [10.0, 20.0]
    assert live.plan.next_iteration == live.plan.now + 10.0 - (live.plan.now + 10.0 - live.plan.next_iteration)
    golden(live.plan.waiting[0].message)


@pytest.mark.parametrize("away", [0, 5, 30], ids=["at once", "5 s later", "30 s later"])
@pytest.mark.parametrize("killed_at", [25, 45, 51, 52, 57, 62, 71])
def test_kill_restarts_neither_grace_periods_nor_rates(killed_at, away):
    live = world(10)
    live.fail(*of("a", 3))
    live.run(killed_at)
    live.kill(away=away)
    live.run(160)
    seconds = [second for _, second in live.tainted]
    assert [name for name, _ in live.tainted] == of("a", 3)
    assert all(later - sooner >= 10 for sooner, later in pairwise(seconds))
    back = killed_at + away
    on_time = [DETECTED, DETECTED + 10, DETECTED + 20]
    for second, promised in zip(seconds, on_time, strict=True):
        assert second >= promised
    assert seconds[0] <= max(DETECTED, back + 2)


@pytest.mark.parametrize("times", [1, 5], ids=["once", "five times in a row"])
def test_kill_between_taint_and_record_keeps_the_rate(times):
    live = world(10)
    live.fail(*of("a", 3))
    live.run(DETECTED)
    for _ in range(times):
        live.kill(unwritten=True)
        live.run(live.second + 1)
    live.run(120)
    seconds = [second for _, second in live.tainted]
    assert [name for name, _ in live.tainted] == of("a", 3)
    assert seconds[0] == DETECTED
    assert all(10 <= later - sooner <= 11 for sooner, later in pairwise(seconds))


def test_early_kill_delays_by_two_renewals_at_most():
    live = world(10)
    live.fail("a01")
    live.run(15)
    live.kill(away=40)
    live.run(120)
    assert live.tainted == [("a01", 15 + 40 + 1 + 20 + 2)]


def test_restart_during_outage_of_all_zones_remembers_it():
    live = world(3, 3)
    live.fail(*cluster(3, 3))
    live.run(100)
    live.kill(away=10)
    live.run(120)
    live.recover("a01")
    live.run(121 + 49)
    assert not live.tainted
    assert live.memory.back is not None
