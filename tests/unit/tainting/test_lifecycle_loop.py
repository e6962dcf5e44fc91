"""The node lifecycle's loop against an API server in memory, in virtual time."""

import asyncio
import json
import random
from itertools import pairwise

import pytest
from msgspec.structs import replace

from tests.fakes.api import Call
from tests.fixtures.golden import Golden
from tests.unit.tainting.lifecycle_world import LEASES, NODES, PODS, RECORD, LivingCluster, Manager, micro, stamp
from trimtab.api import reasons
from trimtab.api.taint_manager import NodeLifecycle
from trimtab.kube.api import Forbidden, ServerError, Unreachable
from trimtab.tainting.lifecycle.zones import BURST

pytestmark = pytest.mark.looptime

BOTH = ["unreachable:NoExecute", "unreachable:NoSchedule"]


def cluster(*counts: int, **fields) -> LivingCluster:
    """Nodes ``a1``, ``a2``, …, ``b1``, … in zones a, b, …; each renews at its own moment."""
    made = LivingCluster(**fields)
    for zone, count in zip("abcdef", counts, strict=False):
        for place in range(1, count + 1):
            made.join(f"{zone}{place}", zone=zone)
    return made


def last_renewal(made: LivingCluster, name: str) -> float:
    said = made.objects[f"{LEASES}/{name}"]["spec"]["renewTime"]
    return next(second for second in range(1000) if micro(float(second)) == said)


async def test_silent_node_is_probed_marked_and_tainted_after_grace_period():
    made = cluster(3, 3)
    async with Manager(made) as manager:
        await manager.until(30)
        made.dead.add("a2")
        await manager.until(120)
        due = last_renewal(made, "a2") + 50
        assert made.unknown == [("a2", pytest.approx(due + 0.5, abs=0.5))]
        assert made.tainted == [("a2", pytest.approx(due + 0.5, abs=0.5))]
        assert made.taints("a2") == BOTH
        assert made.not_ready_pods() == ["a2-0"]
        [condition] = made.objects[f"{PODS}/a2-0"]["status"]["conditions"]
        assert condition["lastTransitionTime"] in [stamp(due + late) for late in (0, 1, 2)]
        assert manager.counts.nodes_tainted == 1
        assert [zone.not_ready for zone in manager.lifecycle.zones] == [1, 0]
        recorded = set(_told(manager))
        assert recorded == {("a2", reasons.NODE_STATUS_UNKNOWN), ("a2", reasons.NODE_NOT_READY)}


def _told(manager):
    return [(each.name, each.reason) for each in manager.reporter.nodes]


async def test_probe_bypasses_caches_before_any_write():
    made = cluster(3)
    async with Manager(made) as manager:
        made.dead.add("a1")
        await manager.until(70)
    about = [call for call in made.calls if call.path.endswith("/a1") or "/a1/" in call.path]
    assert [(call.method, call.path.removeprefix(NODES).removeprefix(LEASES)) for call in about] == [
        ("GET", "/a1"),
        ("GET", "/a1"),
        ("PATCH", "/a1/status"),
        ("PATCH", "/a1"),
    ]
    assert not any("resourceVersion" in call.params for call in about)


async def test_failed_zone_is_tainted_at_its_rate_in_order():
    made = cluster(3, 3, 3)
    async with Manager(made) as manager:
        await manager.until(30)
        made.dead |= {"a1", "a2", "a3"}
        await manager.until(200)
        dues = sorted((last_renewal(made, name) + 50, name) for name in made.dead)
        assert [name for name, _ in made.tainted] == [name for _, name in dues]
        times = [second for _, second in made.tainted]
        assert times[0] == pytest.approx(dues[0][0] + 0.5, abs=0.5)
        assert all(10 <= later - sooner <= 11 for sooner, later in pairwise(times))
        assert [zone.state for zone in manager.lifecycle.zones] == ["FullDisruption", "Normal", "Normal"]
        assert all(zone.waiting == 0 for zone in manager.lifecycle.zones)


async def test_all_zones_down_taints_nothing_and_resets_grace_periods():
    made = cluster(2, 2)
    async with Manager(made) as manager:
        await manager.until(20)
        made.dead |= {"a1", "a2", "b1", "b2"}
        await manager.until(200)
        assert made.tainted == []
        assert {name for name, _ in made.unknown} == made.dead
        assert made.taints("a1") == ["unreachable:NoSchedule"]
        assert {zone.nodes_per_second for zone in manager.lifecycle.zones} == {0.0}
        made.recover("a1")
        await manager.until(245)
        assert made.tainted == []
        made.recover("a2", "b1")
        await manager.until(300)
        assert [name for name, _ in made.tainted] == ["b2"]
        assert made.tainted[0][1] >= 250


async def test_recovered_node_is_untainted_at_once():
    made = cluster(4)
    async with Manager(made) as manager:
        made.dead.add("a1")
        await manager.until(80)
        assert made.taints("a1") == BOTH
        made.recover("a1")
        await manager.until(82)
        assert made.taints("a1") == []
        assert made.freed == [("a1", pytest.approx(80.3, abs=0.3))]


async def test_new_node_keeps_not_ready_taint_until_ready():
    made = cluster(3)
    async with Manager(made) as manager:
        await manager.until(5)
        made.join("new", ready=None, taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
        await manager.until(20)
        assert made.taints("new") == ["not-ready:NoSchedule"]
        made.post("new")
        made.renew("new")
        await manager.until(21)
        assert made.taints("new") == []
        assert made.tainted == []


async def test_silent_new_node_is_unknown_after_startup_grace_period():
    made = cluster(3)
    async with Manager(made) as manager:
        await manager.until(5)
        made.join("new", ready=None)
        await manager.until(5 + 60)
        assert made.unknown == []
        await manager.until(70)
        assert [name for name, _ in made.unknown] == ["new"]


async def test_taints_of_others_are_kept():
    foreign = [
        {"key": "example.com/dedicated", "value": "gpu", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/not-ready", "effect": "PreferNoSchedule"},
    ]
    kept = ["dedicated:NoExecute", "not-ready:PreferNoSchedule", "out-of-service:NoExecute"]
    made = cluster(3)
    made.join("n1", taints=foreign)
    async with Manager(made) as manager:
        made.dead.add("n1")
        await manager.until(80)
        assert made.taints("n1") == sorted([*kept, *BOTH])
        made.recover("n1")
        await manager.until(90)
        assert made.taints("n1") == kept


async def test_lagging_watch_does_not_mark_nodes_unknown(golden: Golden):
    made = cluster(3)
    async with Manager(made) as manager:
        await manager.until(20)
        showing = made.showing
        made.showing = lambda path, old, new: None if path.startswith(LEASES) else showing(path, old, new)
        await manager.until(150)
        assert made.unknown == made.tainted == []
        assert manager.lifecycle.held == reasons.WATCHES_BEHIND
        golden(manager.lifecycle.problem)


async def test_stale_watches_pause_and_do_not_count_as_silence():
    made = cluster(3, 3)
    async with Manager(made) as manager:
        await manager.until(30)
        manager.go_blind()
        made.dead.add("a1")
        await manager.until(150)
        assert made.unknown == made.tainted == []
        assert manager.lifecycle.held == reasons.STALE_WATCHES
        manager.see_again()
        await manager.until(250)
        assert [name for name, _ in made.tainted] == ["a1"]
        assert made.tainted[0][1] >= 150 + 25


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("a webhook says no", status=403),
        ServerError("etcd is busy", status=500),
        Unreachable("no answer"),
    ],
    ids=["forbidden", "server error", "no answer"],
)
async def test_failed_requests_are_retried(error):
    made = cluster(4)
    made.fail(error, times=4, method="PATCH", path="/nodes/a1")
    made.fail(error, times=4, method="PATCH", path="/pods/a1-0")
    async with Manager(made) as manager:
        made.dead.add("a1")
        await manager.until(100)
        assert made.taints("a1") == BOTH
        assert made.not_ready_pods() == ["a1-0"]
        assert ("a1", reasons.NODE_UPDATE_FAILED) in _told(manager)


async def test_pods_of_failed_nodes_are_marked_not_ready_once():
    made = cluster(3)
    stopped = [f"b{number}" for number in range(5)]
    for name in stopped:
        made.join(name, zone="b", pods=12)
    async with Manager(made) as manager:
        await manager.until(30)
        made.dead.update(stopped)
        await manager.until(100)
    assert made.not_ready_pods() == sorted(f"{name}-{place}" for name in stopped for place in range(12))
    assert len(made.sent("PATCH", "/pods/")) == 60


async def test_unwritable_node_does_not_block_the_queue():
    made = cluster(6)
    made.fail(Forbidden("a webhook says no", status=403), times=10**6, method="PATCH", path="/nodes/a3")
    async with Manager(made) as manager:
        made.join("a3", zone="a", ready="False")
        await manager.until(20)
        made.post("a4", "False")
        await manager.until(60)
        assert [name for name, _ in made.tainted] == ["a4"]


async def test_new_node_with_the_name_of_a_refused_one_has_no_backoff():
    made = cluster(6)
    made.fail(Forbidden("a webhook says no", status=403), times=10**6, method="PATCH", path="/nodes/a3")
    async with Manager(made) as manager:
        made.post("a3", "False")
        await manager.until(60)
        refused = len(made.sent("PATCH", "/nodes/a3"))
        while len(made.sent("PATCH", "/nodes/a3")) == refused:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        made.faults.clear()
        made.drop(f"{NODES}/a3")
        await asyncio.sleep(1)
        made.join("a3", zone="a", ready="False", pods=0)
        await asyncio.sleep(1)
        assert "not-ready:NoSchedule" in made.taints("a3")


async def test_conflicting_patch_is_planned_again():
    made = cluster(4)
    async with Manager(made) as manager:
        await manager.until(20)
        meddle = manager_before = made.before

        async def before(call: Call) -> None:
            if call.method == "PATCH" and call.path == f"{NODES}/a1" and "mine" not in str(made.taints("a1")):
                node = json.loads(json.dumps(made.objects[call.path]))
                node["spec"]["taints"] = [{"key": "example.com/mine", "effect": "NoSchedule"}]
                made.put(call.path, node)
            await manager_before(call)

        assert meddle is not None
        made.before = before
        made.dead.add("a1")
        await manager.until(100)
        assert made.taints("a1") == sorted([*BOTH, "mine:NoSchedule"])


async def test_deleted_node_is_ignored():
    made = cluster(4)
    async with Manager(made) as manager:
        made.dead.add("a1")
        await manager.until(45)
        made.blind = True
        made.heard = manager.clock.now() + 1e6
        made.objects.pop(f"{NODES}/a1")
        await manager.until(75)
        assert len(made.sent("GET", "/nodes/a1")) == 1
        assert not made.sent("PATCH", "/nodes/a1")
        assert manager.lifecycle.problem == ""


async def test_heartbeats_do_not_wake_the_loop():
    made = cluster(3)
    async with Manager(made) as manager:
        await manager.until(5)
        before = len(made.calls)
        for second in range(10, 100, 10):
            for name in ("a1", "a2", "a3"):
                made.post(name)
            await manager.until(second)
        assert len(made.calls) == before


async def test_clock_change_makes_no_node_silent():
    made = cluster(3, 3)
    async with Manager(made) as manager:
        await manager.until(30)
        for skew in (3600.0, 0.0):
            manager.clock.skew = skew
            await manager.until(made.time + 20)
        assert made.unknown == []
        assert not made.sent("GET", NODES)


async def test_changed_settings_apply_at_once():
    made = cluster(5)
    slow = NodeLifecycle(node_eviction_rate=0.01)
    async with Manager(made, settings=slow) as manager:
        for name in ("a1", "a2"):
            made.post(name, "False")
        await manager.until(50)
        assert len(made.tainted) == 1
        manager.lifecycle.configure(replace(slow, node_eviction_rate=1.0))
        await manager.until(51)
        assert len(made.tainted) == 2


@pytest.mark.parametrize("rate", [1.0, 5.0, 10.0, 100.0])
async def test_fast_rates_are_reached_and_not_exceeded(rate):
    made = cluster(60)
    failing = [f"a{number}" for number in range(1, 26)]
    async with Manager(made, settings=NodeLifecycle(node_eviction_rate=0.0)) as manager:
        made.dead.update(failing)
        await manager.until(120)
        manager.lifecycle.configure(NodeLifecycle(node_eviction_rate=rate))
        await manager.until(150)
    seconds = [second for _, second in made.tainted]
    assert len(seconds) == 25
    assert seconds[-1] - 120 == pytest.approx(24 / rate, abs=0.7, rel=0.05)
    for first, sooner in enumerate(seconds):
        assert all(later - sooner >= many / rate - BURST - 0.05 for many, later in enumerate(seconds[first:]))


@pytest.mark.parametrize("rate", [0.1, 0.5, 2.0, 20.0])
@pytest.mark.parametrize("error", [None, Unreachable("no answer")], ids=["answers", "lost answers"])
async def test_slow_api_server_does_not_exceed_the_rate(rate, error):
    """Each request takes up to two seconds until it arrives, and up to two until its answer does."""
    made = cluster(60)
    failing = [f"a{number}" for number in range(1, 16)]
    chance = random.Random(7)
    arrived: list[float] = []
    async with Manager(made, settings=NodeLifecycle(node_eviction_rate=0.0)) as manager:
        made.dead.update(failing)
        await manager.until(120)

        async def before(call: Call) -> None:
            if _taints(call):
                await asyncio.sleep(chance.uniform(0.0, 2.0))
                arrived.append(made.time)

        async def after(call: Call) -> None:
            if _taints(call):
                await asyncio.sleep(chance.uniform(0.0, 2.0))
                if error is not None and chance.random() < 0.3:
                    raise error

        made.before, made.after = before, after
        manager.lifecycle.configure(NodeLifecycle(node_eviction_rate=rate))
        await manager.until(120 + 16 * (1 / rate + 6))
    assert sorted(name for name, _ in made.tainted) == sorted(failing)
    for first, sooner in enumerate(arrived):
        for many, later in enumerate(arrived[first:]):
            assert later - sooner >= (many / rate if 1 / rate >= BURST else (many - 1) / rate - BURST) - 0.001


def _taints(call: Call) -> bool:
    return call.method == "PATCH" and "NoExecute" in str(call.body)


async def test_stop_finishes_requests_and_writes_the_record():
    made = cluster(4)
    async with Manager(made) as manager:
        made.dead.add("a1")
        await manager.until(40)
        await manager.lifecycle.stop()
        await manager.until(45)
        assert "a1" in json.loads(made.objects[RECORD]["data"]["lifecycle"])["silent"]
        calls = len(made.calls)
        await manager.until(150)
        assert len(made.calls) == calls
        assert made.unknown == []


async def test_nothing_happens_before_the_record_is_read(golden: Golden):
    made = cluster(4)
    made.fail(Unreachable("no answer"), times=6, method="GET", path="configmaps")
    made.post("a1", "False")
    async with Manager(made) as manager:
        await manager.until(5)
        assert made.sent("PATCH") == []
        golden(manager.lifecycle.problem)
        await manager.until(40)
        assert made.tainted != []
        assert manager.lifecycle.problem == ""


async def test_stop_does_not_wait_for_the_record():
    made = cluster(1)
    made.fail(Unreachable("no answer"), times=10**6, method="GET", path="configmaps")
    async with Manager(made) as manager:
        await manager.until(5)
        await manager.lifecycle.stop()
        await manager.until(30)
        assert manager.ended
        assert made.sent("PATCH") == []


# ── kills ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def outage(kills: tuple[int, ...], *, answered: bool) -> tuple[LivingCluster, Manager]:
    """Zone a of two nodes fails, one recovers while it is tainted, with kills at these requests."""
    made = cluster(2, 2)
    async with Manager(made, kills=kills, answered=answered) as manager:
        await manager.until(20.5)
        made.dead |= {"a1", "a2"}
        await manager.until(110)
        made.recover("a1")
        await manager.until(140)
    return made, manager


REQUESTS = 24
"""More than an outage takes."""


@pytest.mark.parametrize("answered", [True, False], ids=["after its answer", "before it is sent"])
@pytest.mark.parametrize("number", range(1, REQUESTS + 1))
async def test_kill_at_any_request_loses_nothing(number, answered):
    made, _ = await outage((number,), answered=answered)
    due = sorted((last_renewal_before(name) + 50, name) for name in ("a1", "a2"))
    assert [name for name, _ in made.tainted] == [name for _, name in due]
    for (_, second), promised in zip(made.tainted, (due[0][0], due[0][0] + 10), strict=True):
        assert promised <= second <= promised + 3
    assert made.taints("a1") == []
    assert made.taints("a2") == BOTH
    assert made.not_ready_pods() == ["a1-0", "a2-0"]
    assert len(made.unknown) == 2


def last_renewal_before(name: str, second: int = 20) -> float:
    """Nodes renew in turn: the n-th by name when second + n is divisible by ten."""
    place = ["a1", "a2", "b1", "b2"].index(name)
    return max(each for each in range(second + 1) if (each + place) % 10 == 0)


async def test_outage_has_no_more_requests_than_are_killed():
    made, manager = await outage((), answered=True)
    assert manager.killed == 0
    assert len(made.calls) <= REQUESTS


@pytest.mark.parametrize("answered", [True, False], ids=["after the answer", "before it is sent"])
async def test_kills_at_every_third_request_lose_nothing(answered):
    made, manager = await outage(tuple(range(4, 60, 3)), answered=answered)
    assert manager.killed > 5
    assert {name for name, _ in made.tainted} == {"a1", "a2"}
    seconds = [second for _, second in made.tainted]
    assert all(later - sooner >= 10 for sooner, later in pairwise(seconds))
    assert made.taints("a1") == []
    assert made.taints("a2") == BOTH
