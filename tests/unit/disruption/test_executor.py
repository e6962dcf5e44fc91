"""Carrying out a plan: order, pace, retries, and what becomes of every action."""

from __future__ import annotations

import asyncio
import logging
import math
from functools import partial

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.api import Call
from tests.fakes.history import FakeHistory
from tests.fixtures.golden import Golden
from tests.unit.disruption.world import POLICY, World, budget_refusal
from trimtab.api import reasons
from trimtab.disruption.limits import EvictionLimits
from trimtab.disruption.outcome import EVICTED, FAILED, GONE, REFUSED, SKIPPED, Refusal
from trimtab.kube.api import Conflict, Forbidden, Invalid, ServerError, TooManyRequests, Unreachable
from trimtab.kube.resources import PODS

pytestmark = pytest.mark.looptime


def results(outcomes):
    return [(outcome.action.pod, outcome.result, outcome.reason) for outcome in outcomes]


async def test_planned_pod_is_evicted_with_uid_precondition():
    world = World()
    outcomes = await world.execute(world.plan(world.add("web-1")))
    assert results(outcomes) == [("web-1", EVICTED, reasons.EVICTED)]
    [call] = world.api.sent("POST", "/eviction")
    assert call.path == "/api/v1/namespaces/shop/pods/web-1/eviction"
    assert call.body["deleteOptions"] == {"preconditions": {"uid": "uid-web-1"}}
    assert not world.api.sent("DELETE")


async def test_policy_grace_period_is_sent():
    world = World()
    web = world.add("web-1")

    await world.execute(world.plan(web), grace_period=0)

    [call] = world.api.sent("POST", "/eviction")
    assert call.body["deleteOptions"] == {"preconditions": {"uid": "uid-web-1"}, "gracePeriodSeconds": 0}


async def test_eviction_is_reported_in_events_log_and_observer(caplog, golden: Golden):
    caplog.set_level(logging.INFO)
    world = World()
    [outcome] = await world.execute(world.plan(world.add("web-1")))
    on_pod, on_policy = world.recorder.events
    assert str(on_pod.regarding) == "Pod/shop/web-1"
    assert (on_pod.regarding.uid, str(on_pod.related)) == ("uid-web-1", "Node/n1")
    assert (on_pod.reason, on_pod.action, on_pod.type) == ("DuplicateOnNode", "Evict", "Normal")
    golden(on_pod.note)
    assert (on_policy.regarding, str(on_policy.related)) == (POLICY, "Pod/shop/web-1")
    assert world.seen == [outcome]
    [line] = [record for record in caplog.records if record.name.startswith("trimtab.disruption")]
    wanted = {
        "policy": "spread",
        "strategy": "RemoveDuplicates",
        "reason": "DuplicateOnNode",
        "node": "n1",
        "target": "new",
        "result": EVICTED,
    }
    assert wanted.items() <= vars(line).items()


async def test_observer_gets_each_outcome():
    world = World()
    heard = []
    outcomes = await world.execute(world.plan(world.add("web-1")), observe=heard.append)
    assert heard == outcomes


async def test_a_refused_eviction_is_retried():
    world = World()
    world.api.fail(budget_refusal(), times=3, path="/eviction")
    outcomes = await world.execute(world.plan(world.add("web-1")))
    assert results(outcomes) == [("web-1", EVICTED, reasons.EVICTED)]
    assert len(world.asked) == 4


async def test_refusal_is_reported_at_deadline_with_server_message():
    world = World()
    refusal = budget_refusal()
    world.api.fail(refusal, times=1000, path="/eviction")
    [outcome] = await world.execute(world.plan(world.add("web-1")), seconds=60)
    assert (outcome.result, outcome.reason) == (REFUSED, reasons.DISRUPTION_BUDGET)
    assert refusal.causes[0]["message"] in outcome.message
    assert world.clock.monotonic() <= 60
    assert len(world.asked) > 3
    assert {(recorded.regarding.kind, recorded.reason, recorded.type) for recorded in world.recorder.events} == {
        ("Pod", "DisruptionBudget", "Warning"),
        ("DeschedulerPolicy", "DisruptionBudget", "Warning"),
    }


async def test_retry_after_is_honoured():
    world = World()
    world.api.fail(budget_refusal(retry_after=20), path="/eviction")
    await world.execute(world.plan(world.add("web-1")))
    (_, first), (_, second) = world.asked
    assert second - first >= 20


async def test_refused_pod_does_not_block_other_owners():
    world = World()
    world.api.fail(budget_refusal(), times=1000, path="web-1/eviction")
    pods = [world.add("web-1"), *(world.add(f"db-{number}", owner=f"db-{number}") for number in range(20))]
    outcomes = await world.execute(world.plan(*pods), seconds=60, per_minute=6000)
    assert [outcome.result for outcome in outcomes] == [REFUSED, *[EVICTED] * 20]
    assert max(world.times.values()) < 2


async def test_several_budgets_are_reported_without_retry():
    world = World()
    world.api.fail(ServerError("This pod has more than one PodDisruptionBudget", status=500), path="/eviction")
    outcomes = await world.execute(world.plan(world.add("web-1")))
    assert results(outcomes) == [("web-1", REFUSED, reasons.DISRUPTION_BUDGET)]
    assert len(world.asked) == 1


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(TooManyRequests("too many requests, please try again later", status=429), id="overload"),
        pytest.param(ServerError("etcdserver: leader changed", status=500), id="server error"),
        pytest.param(Unreachable("connection refused"), id="unreachable"),
        pytest.param(Conflict("the object has been modified", status=409), id="conflict of versions"),
    ],
)
async def test_transient_failure_is_retried(error):
    world = World()
    world.api.fail(error, times=3, path="/eviction")
    outcomes = await world.execute(world.plan(world.add("web-1")))
    assert results(outcomes) == [("web-1", EVICTED, reasons.EVICTED)]


@pytest.mark.parametrize(
    ("error", "result", "reason"),
    [
        pytest.param(TooManyRequests("slow down", status=429), REFUSED, reasons.EVICTION_REFUSED, id="overload"),
        pytest.param(ServerError("boom", status=500), FAILED, reasons.EVICTION_FAILED, id="server error"),
        pytest.param(Unreachable("connection refused"), FAILED, reasons.EVICTION_FAILED, id="unreachable"),
    ],
)
async def test_persistent_failure_is_reported_at_deadline(error, result, reason):
    world = World()
    world.api.fail(error, times=1000)
    [outcome] = await world.execute(world.plan(world.add("web-1")), seconds=45)
    assert (outcome.result, outcome.reason) == (result, reason)
    assert str(error) in outcome.message
    assert world.clock.monotonic() <= 45


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Forbidden("pods is forbidden: no create of pods/eviction", status=403), id="forbidden"),
        pytest.param(Invalid("no such field", status=422), id="invalid"),
        pytest.param(RuntimeError("a defect"), id="a defect of ours"),
    ],
)
async def test_permanent_failure_is_reported_at_once(error):
    world = World()
    world.api.fail(error, path="web-1/eviction")
    outcomes = await world.execute(world.plan(world.add("web-1"), world.add("web-2"), world.add("db-1", owner="db")))
    assert results(outcomes) == [
        ("web-1", FAILED, reasons.EVICTION_FAILED),
        ("web-2", EVICTED, reasons.EVICTED),
        ("db-1", EVICTED, reasons.EVICTED),
    ]
    assert str(error) in outcomes[0].message
    assert world.clock.monotonic() < 5


async def test_eviction_with_lost_response_is_not_repeated():
    world = World()
    world.api.lose = 1
    [outcome] = await world.execute(world.plan(world.add("web-1")))
    assert (outcome.result, outcome.reason) == (EVICTED, reasons.EVICTED)
    assert len(world.asked) == 1


async def test_failed_reads_after_a_lost_response_do_not_count_toward_the_rate_limit():
    world = World()
    world.api.lose = 1
    world.cut_after_eviction = 62.0
    [outcome] = await world.execute(world.plan(world.add("web-1")), per_minute=1, seconds=400)
    assert outcome.result == EVICTED
    assert world.clock.monotonic() < 80


async def test_eviction_with_a_lost_response_counts_toward_the_rate_limit_from_when_it_is_known():
    world = World()
    world.api.lose = 1
    world.cut_after_eviction = 30.0
    pods = [world.add(f"p-{number}", owner=f"o-{number}") for number in range(3)]
    await world.execute(world.plan(*pods), per_minute=2, seconds=400)
    assert [at for _, at in world.asked] == [0.0, pytest.approx(30.0, abs=1.0), pytest.approx(90.0, abs=1.0)]


async def test_eviction_that_was_granted_with_a_conflict_is_not_repeated():
    world = World()
    world.api.lose, world.api.lost_as = 1, Conflict("the object has been modified", status=409)
    [outcome] = await world.execute(world.plan(world.add("web-1")))
    assert (outcome.result, outcome.reason) == (EVICTED, reasons.EVICTED)
    assert len(world.asked) == 1


async def test_lost_response_is_resolved_once_the_server_is_reachable():
    world = World()
    world.api.lose = 1
    world.cut_after_eviction = 20.0
    [outcome] = await world.execute(world.plan(world.add("web-1")))
    assert outcome.result == EVICTED
    assert len(world.asked) == 1
    assert 20 < world.clock.monotonic() < 30


async def test_pod_deleted_by_others_is_not_counted_as_evicted():
    world = World()
    pod = world.add("web-1")
    world.api.fail(Unreachable("reset"), path="/eviction")
    path = PODS.path("web-1", namespace="shop")
    world.api.objects[path]["metadata"]["deletionTimestamp"] = "2026-11-20T12:00:00Z"
    [outcome] = await world.execute(world.plan(pod))
    assert (outcome.result, outcome.reason) == (GONE, reasons.ALREADY_GONE)


async def test_late_processed_request_counts_as_evicted():
    world = World()
    pod = world.add("web-1")
    world.api.fail(Unreachable("timed out"), path="/eviction")
    looks = 0

    async def late(call):
        nonlocal looks
        looks += call.method == "GET"
        if call.path.endswith("/eviction") and looks == 2:
            world.api.objects.pop(PODS.path("web-1", namespace="shop"))

    world.api.before = late
    [outcome] = await world.execute(world.plan(pod))
    assert looks == 2
    assert (outcome.result, outcome.reason) == (EVICTED, reasons.EVICTED)


@pytest.mark.parametrize("gone", [False, True], ids=["terminating", "gone"])
async def test_eviction_after_its_pod_was_seen_running_is_recorded_once(gone: bool, caplog: pytest.LogCaptureFixture):
    """The permit has been released, because the second read after the lost response showed that the pod runs."""
    caplog.set_level(logging.INFO)
    history = FakeHistory()
    world = World(history=history)
    pod = world.add("web-1")
    world.api.fail(Unreachable("timed out"), path="/eviction")
    reads = 0

    async def evicted_late(call):
        nonlocal reads
        reads += call.method == "GET"
        if reads == 2 and gone:
            world.snapshot.remove(pod)
        elif reads == 2:
            world.snapshot.put(msgspec.structs.replace(pod, deleted=world.clock.now()))

    world.api.before = evicted_late
    [outcome] = await world.execute(world.plan(pod))
    assert (outcome.result, outcome.reason) == (EVICTED, reasons.EVICTED)
    [entry] = history.entries
    assert (entry.result, entry.action, entry.uid, entry.owner) == ("Succeeded", "Evict", pod.uid, "ReplicaSet/web")
    [line] = [record for record in caplog.records if record.name.startswith("trimtab.disruption")]
    assert (line.uid, line.result) == (pod.uid, EVICTED)
    assert world.metrics.results == [EVICTED]


async def test_network_partition_loses_no_eviction():
    world = World(latency=0.05)
    pods = [world.add(f"p-{number}", owner=f"o-{number % 10}") for number in range(40)]

    async def cut() -> None:
        await asyncio.sleep(3)
        world.api.down = True
        await asyncio.sleep(20)
        world.api.down = False

    cutting = asyncio.create_task(cut())
    outcomes = await world.execute(world.plan(*pods))
    await cutting
    assert [outcome.result for outcome in outcomes] == [EVICTED] * 40
    assert sorted(world.times) == sorted(pod.name for pod in pods)


async def test_next_pod_of_owner_waits_for_ready_replacement():
    world = World(restart=7.0)
    pods = [world.add("web-1"), world.add("web-2"), world.add("web-3")]
    outcomes = await world.execute(world.plan(*pods))
    assert [outcome.result for outcome in outcomes] == [EVICTED] * 3
    assert world.times["web-2"] - world.times["web-1"] >= 7
    assert world.times["web-3"] - world.times["web-2"] >= 7


async def test_owners_in_different_namespaces_are_independent():
    world = World(restart=None)
    one, other = world.plan(world.add("web-1"), world.add("web-2"))
    other = msgspec.structs.replace(other, owner="ReplicaSet/other")
    assert [outcome.result for outcome in await world.execute([one, other])] == [EVICTED, EVICTED]


async def test_unrecovered_owner_keeps_its_other_pods(golden: Golden):
    world = World(restart=None, recovery_timeout=30.0)
    pods = [world.add("web-1"), world.add("web-2"), world.add("web-3"), world.add("db-1", owner="db")]
    outcomes = await world.execute(world.plan(*pods))
    assert results(outcomes) == [
        ("web-1", EVICTED, reasons.EVICTED),
        ("web-2", SKIPPED, reasons.OWNER_NOT_SETTLED),
        ("web-3", SKIPPED, reasons.OWNER_NOT_SETTLED),
        ("db-1", EVICTED, reasons.EVICTED),
    ]
    golden(outcomes[1].message)
    assert world.clock.monotonic() < 35


async def test_unrecovered_owner_blocks_the_next_execution():
    world = World(restart=None)
    first, second = world.add("web-1"), world.add("web-2")
    await world.execute(world.plan(first))
    outcomes = await world.execute(world.plan(second))
    assert results(outcomes) == [("web-2", SKIPPED, reasons.OWNER_NOT_SETTLED)]


async def test_outdated_plan_does_not_reset_owner_recovery():
    world = World(restart=None)
    first, second = world.add("web-1"), world.add("web-2")
    await world.execute(world.plan(first))
    outcomes = await world.execute(world.plan(first, second))
    assert results(outcomes) == [
        ("web-1", GONE, reasons.ALREADY_GONE),
        ("web-2", SKIPPED, reasons.OWNER_NOT_SETTLED),
    ]


async def test_scaled_down_owner_settles_after_timeout():
    world = World(restart=None)
    first, second = world.add("web-1"), world.add("web-2")
    await world.execute(world.plan(first))
    await asyncio.sleep(1000)
    assert results(await world.execute(world.plan(second))) == [("web-2", EVICTED, reasons.EVICTED)]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        pytest.param({"node": "", "phase": "Pending", "ready": False}, "has no node yet", id="unscheduled"),
        pytest.param(
            {"ready": False, "created": 1_800_000_000.0}, "was created 15s ago and is not ready yet", id="starting"
        ),
    ],
)
async def test_pods_show_unrecovered_owner_after_restart(other, words):
    world = World()
    pod = world.add("web-1")
    world.add("web-2", **{"node": "n2", **other})
    [outcome] = await world.execute(world.plan(pod))
    assert (outcome.result, outcome.reason) == (SKIPPED, reasons.OWNER_NOT_SETTLED)
    assert words in outcome.message
    assert not world.asked


async def test_long_not_ready_pod_does_not_block_its_owner():
    world = World()
    pod = world.add("web-1")
    world.add("web-2", node="n2", ready=False, created=1_700_000_000.0)
    assert results(await world.execute(world.plan(pod))) == [("web-1", EVICTED, reasons.EVICTED)]


async def test_statefulset_pod_waits_for_previous_termination():
    world = World()
    going = world.add("db-0", owner="db", deleted=1_800_000_000.0)
    world.put(msgspec.structs.replace(going, owners=(msgspec.structs.replace(going.owners[0], kind="StatefulSet"),)))
    pod = world.add("db-1", owner="db", node="n2")
    pod = msgspec.structs.replace(pod, owners=(msgspec.structs.replace(pod.owners[0], kind="StatefulSet"),))
    world.put(pod)
    action = msgspec.structs.replace(world.plan(pod)[0], owner="StatefulSet/db")

    async def gone() -> None:
        await asyncio.sleep(5)
        world.drop(world.snapshot.pods["shop/db-0"])

    going_task = asyncio.create_task(gone())
    assert [outcome.result for outcome in await world.execute([action])] == [EVICTED]
    await going_task
    assert world.times["db-1"] >= 5


async def test_never_more_than_eight_requests_are_in_flight():
    world = World(latency=1.0)
    pods = [world.add(f"p-{number}", owner=f"o-{number}") for number in range(40)]
    await world.execute(world.plan(*pods), per_minute=6000)
    assert world.api.most == 8


async def test_actions_run_in_plan_order():
    world = World()
    pods = [world.add(f"p-{number}", owner=f"o-{number}") for number in range(20)]
    await world.execute(world.plan(*pods), per_minute=6000)
    assert [name for name, _ in world.asked] == [pod.name for pod in pods]


@given(per_minute=st.integers(1, 90), number=st.integers(1, 60), latency=st.sampled_from([0.0, 0.3, 3.0]))
@settings(deadline=None, max_examples=30)
def test_rate_limit_is_never_exceeded(per_minute, number, latency):
    import looptime

    async def run() -> list[float]:
        world = World(latency=latency)
        pods = [world.add(f"p-{each}", owner=f"o-{each}") for each in range(number)]
        half = number // 2
        await world.execute(world.plan(*pods[:half]), per_minute=per_minute, seconds=4000)
        await world.execute(world.plan(*pods[half:]), per_minute=per_minute, seconds=4000)
        assert len(world.times) == number
        return sorted(at for _, at in world.asked)

    with asyncio.Runner(loop_factory=partial(looptime.new_event_loop, noop_cycles=1)) as runner:
        times = runner.run(run())
    for start in times:
        assert sum(start <= at < start + 59.9 for at in times) <= per_minute
    assert times[-1] <= math.ceil(number / per_minute) * 60 + (number + 1) * latency


async def test_request_that_arrives_late_counts_toward_the_rate_limit_from_then_on():
    world = World()
    arrived = []

    async def first_is_late(call: Call) -> None:
        if call.path.endswith("/eviction"):
            await asyncio.sleep(0.0 if arrived else 5.0)
            arrived.append(world.clock.monotonic())

    world.api.before = first_is_late
    pods = [world.add(f"p-{each}", owner=f"o-{each}") for each in range(2)]
    await world.execute(world.plan(*pods), per_minute=1, seconds=400)
    assert arrived == [5.0, pytest.approx(65.0, abs=1.0)]
    assert arrived[1] >= 65.0


async def test_skipped_action_returns_rate_limit_token():
    world = World()
    pods = [world.add(f"p-{number}", owner=f"o-{number}") for number in range(10)]
    for pod in pods[:9]:
        world.api.objects.pop(PODS.path(pod.name, namespace="shop"))
    outcomes = await world.execute(world.plan(*pods), per_minute=1, seconds=30)
    assert [outcome.result for outcome in outcomes] == [GONE] * 9 + [EVICTED]


async def test_failing_requests_are_rate_limited():
    world = World()
    world.api.fail(Forbidden("no create of pods/eviction", status=403), times=1000, path="/eviction")
    pods = [world.add(f"p-{number}", owner=f"o-{number}") for number in range(40)]
    await world.execute(world.plan(*pods), per_minute=6, seconds=35)
    assert len(world.asked) == 4


async def test_retried_action_returns_rate_limit_token():
    world = World()
    world.api.fail(budget_refusal(), times=2, path="p-0/eviction")
    world.api.fail(Conflict("the object has been modified", status=409), times=2, path="p-0/eviction")
    outcomes = await world.execute(world.plan(world.add("p-0")), per_minute=1, seconds=50)
    assert [outcome.result for outcome in outcomes] == [EVICTED]


async def test_action_without_time_for_retry_ends_at_once():
    world = World()
    world.api.fail(budget_refusal(retry_after=200), path="web-1/eviction")
    outcomes = await world.execute(world.plan(world.add("web-1"), world.add("web-2")), seconds=60)
    assert [outcome.result for outcome in outcomes] == [REFUSED, EVICTED]
    assert world.clock.monotonic() < 5


CHANGES = [
    pytest.param(lambda world, pod: world.drop(pod), GONE, reasons.ALREADY_GONE, id="gone"),
    pytest.param(
        lambda world, pod: world.put(msgspec.structs.replace(pod, uid="another")), GONE, reasons.ALREADY_GONE, id="uid"
    ),
    pytest.param(
        lambda world, pod: world.put(msgspec.structs.replace(pod, deleted=1.0)), GONE, reasons.TERMINATING, id="going"
    ),
    pytest.param(
        lambda world, pod: world.put(msgspec.structs.replace(pod, phase="Failed")), SKIPPED, reasons.TERMINAL, id="end"
    ),
    pytest.param(
        lambda world, pod: world.put(msgspec.structs.replace(pod, node="n9")),
        SKIPPED,
        reasons.PLAN_OUTDATED,
        id="another node",
    ),
]


@pytest.mark.parametrize(("change", "result", "reason"), CHANGES)
async def test_pod_changed_since_the_plan_is_skipped(change, result, reason):
    world = World()
    pod = world.add("web-1")
    plan = world.plan(pod)
    change(world, pod)
    assert results(await world.execute(plan)) == [("web-1", result, reason)]
    assert not world.asked
    assert not world.recorder.events


async def test_new_pod_with_same_name_is_not_evicted():
    world = World()
    plan = world.plan(world.add("web-1"))
    world.api.objects[PODS.path("web-1", namespace="shop")]["metadata"]["uid"] = "successor"
    assert results(await world.execute(plan)) == [("web-1", GONE, reasons.ALREADY_GONE)]
    assert PODS.path("web-1", namespace="shop") in world.api.objects


async def test_action_without_uid_fails():
    world = World()
    [action] = world.plan(world.add("web-1"))
    [outcome] = await world.execute([msgspec.structs.replace(action, uid="")])
    assert outcome.result == FAILED
    assert not world.asked


async def test_recheck_runs_before_each_eviction():
    world = World(restart=1.0)
    requested: list[tuple[str, float]] = []

    async def recheck(action):
        requested.append((action.pod, world.clock.monotonic()))
        return Refusal(reason=reasons.NO_PLACE, message="0/3 nodes") if action.pod == "web-2" else None

    pods = [world.add("web-1"), world.add("web-2"), world.add("web-3")]
    outcomes = await world.execute(world.plan(*pods), recheck=recheck)
    assert results(outcomes) == [
        ("web-1", EVICTED, reasons.EVICTED),
        ("web-2", REFUSED, reasons.NO_PLACE),
        ("web-3", EVICTED, reasons.EVICTED),
    ]
    assert [name for name, _ in requested] == ["web-1", "web-2", "web-3"]
    assert requested[1][1] >= 1


async def test_failing_recheck_does_not_stop_other_actions():
    world = World()

    async def recheck(action):
        if action.pod == "web-1":
            raise KeyError("n7")

    outcomes = await world.execute(world.plan(world.add("web-1"), world.add("db-1", owner="db")), recheck=recheck)
    assert [outcome.result for outcome in outcomes] == [FAILED, EVICTED]
    assert "KeyError" in outcomes[0].message


async def test_recheck_that_fails_for_a_while_is_repeated_in_the_same_cycle():
    world = World()
    times: list[float] = []

    async def recheck(action):
        times.append(world.clock.monotonic())
        if len(times) < 3:
            raise RuntimeError("the snapshot is borrowed")

    outcomes = await world.execute(world.plan(world.add("web-1"), world.add("db-1", owner="db")), recheck=recheck)
    assert [outcome.result for outcome in outcomes] == [EVICTED, EVICTED]
    assert len(times) == 4
    assert times == sorted(times)


async def test_stop_finishes_in_flight_requests_only():
    world = World(latency=2.0)
    pods = [world.add(f"p-{number}", owner=f"o-{number}") for number in range(20)]
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(1.0, stop.set)
    outcomes = await world.execute(world.plan(*pods), per_minute=6000, stop=stop)
    assert [outcome.result for outcome in outcomes] == [EVICTED] * 8 + [SKIPPED] * 12
    assert {outcome.reason for outcome in outcomes[8:]} == {reasons.SHUTTING_DOWN}
    assert world.clock.monotonic() == pytest.approx(2.0, abs=0.1)


async def test_stop_ends_all_kinds_of_waiting():
    world = World(restart=None)
    world.api.fail(budget_refusal(retry_after=200), times=100, path="db-1/eviction")
    pods = [world.add("web-1"), world.add("web-2"), world.add("db-1", owner="db")]
    pods += [world.add(f"p-{number}", owner=f"o-{number}") for number in range(20)]
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(5.0, stop.set)
    outcomes = await world.execute(world.plan(*pods), per_minute=6, stop=stop)
    assert world.clock.monotonic() == pytest.approx(5.0, abs=0.1)
    assert outcomes[0].result == EVICTED
    assert (outcomes[1].result, outcomes[1].reason) == (SKIPPED, reasons.SHUTTING_DOWN)
    assert {outcome.reason for outcome in outcomes[3:]} == {reasons.SHUTTING_DOWN}


async def test_reason_for_which_an_execution_was_stopped_is_reported():
    world, stop = World(), asyncio.Event()
    stop.set()
    refusal = Refusal(reasons.POLICY_CHANGED, "the policy was changed")
    [outcome] = await world.execute(world.plan(world.add("web-1")), stop=stop, stop_refusal=lambda: refusal)
    assert (outcome.result, outcome.reason, outcome.message) == (SKIPPED, refusal.reason, refusal.message)


async def test_no_request_while_caches_are_stale():
    world = World()
    pods = [world.add("web-1"), world.add("web-2")]

    def blind():
        return "no word on pods" if world.clock.monotonic() < 7.0 else None

    outcomes = await world.execute(world.plan(*pods), not_ready_reason=blind)
    assert [outcome.result for outcome in outcomes] == [EVICTED, EVICTED]
    assert min(at for _, at in world.asked) >= 7.0


async def test_stale_caches_until_deadline_skip_remaining_actions():
    world = World()
    outcomes = await world.execute(
        world.plan(world.add("web-1")), seconds=30.0, not_ready_reason=lambda: "no word on pods"
    )
    assert [outcome.reason for outcome in outcomes] == [reasons.CYCLE_DEADLINE]
    assert world.asked == []


async def test_actions_after_deadline_are_reported():
    world = World()
    pods = [world.add(f"p-{number}", owner=f"o-{number}") for number in range(10)]
    outcomes = await world.execute(world.plan(*pods), per_minute=6, seconds=25)
    assert [outcome.result for outcome in outcomes] == [EVICTED] * 3 + [SKIPPED] * 7
    assert {outcome.reason for outcome in outcomes[3:]} == {reasons.CYCLE_DEADLINE}
    assert world.clock.monotonic() == pytest.approx(25.0, abs=0.1)


async def test_passed_deadline_starts_nothing():
    world = World()
    outcomes = await world.execute(world.plan(world.add("web-1")), seconds=0)
    assert results(outcomes) == [("web-1", SKIPPED, reasons.CYCLE_DEADLINE)]
    assert not world.asked


async def test_empty_plan_finishes_at_once():
    assert await World().execute([]) == []


async def test_cancelled_execution_leaves_no_task():
    world = World(latency=5.0)
    running = asyncio.create_task(world.execute(world.plan(world.add("web-1"))))
    await asyncio.sleep(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_reached_namespace_limit_blocks_only_its_pods():
    world = World(restart=None, limits=EvictionLimits(max_concurrent_per_namespace=1))
    shop = [world.add(f"web-{number}", owner=f"web-{number}") for number in range(3)]
    bank = world.add("db-1", owner="db", namespace="bank")
    blocked = asyncio.create_task(world.execute(world.plan(*shop, bank), seconds=20.0))
    await asyncio.sleep(0.1)
    assert world.times.keys() == {"web-0", "db-1"}
    await blocked


async def test_two_policies_do_not_evict_two_pods_of_one_owner():
    world = World(restart=5.0, latency=0.5)
    first, second = world.add("web-1"), world.add("web-2")
    one, other = await asyncio.gather(world.execute(world.plan(first)), world.execute(world.plan(second)))
    assert [outcome.result for outcome in [*one, *other]] == [EVICTED, EVICTED]
    assert abs(world.times["web-2"] - world.times["web-1"]) >= 5


@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_every_action_has_exactly_one_outcome(data):
    import looptime

    errors = [
        None,
        budget_refusal(),
        TooManyRequests("slow down", status=429),
        ServerError("boom", status=500),
        Forbidden("no", status=403),
        Unreachable("reset"),
        Conflict("modified", status=409),
        ValueError("a defect"),
    ]
    number = data.draw(st.integers(0, 12))
    owners = data.draw(st.lists(st.sampled_from("abc"), min_size=number, max_size=number))
    faults = data.draw(st.lists(st.tuples(st.sampled_from(errors), st.integers(0, 11), st.integers(1, 30)), max_size=6))
    lose = data.draw(st.integers(0, 3))
    restart = data.draw(st.sampled_from([0.0, 3.0, None]))
    stop_at = data.draw(st.none() | st.floats(0.0, 60.0))

    async def run() -> None:
        world = World(restart=restart, latency=data.draw(st.sampled_from([0.0, 0.4])))
        pods = [world.add(f"p-{each}", owner=owner) for each, owner in enumerate(owners)]
        for error, which, times in faults:
            if error is not None:
                world.api.fail(error, times=times, path=f"p-{which}")
        world.api.lose = lose
        stop = asyncio.Event()
        if stop_at is not None:
            asyncio.get_running_loop().call_later(stop_at, stop.set)
        plan = world.plan(*pods)
        outcomes = await world.execute(plan, seconds=90, stop=stop)
        assert [outcome.action for outcome in outcomes] == plan
        assert sorted(world.seen, key=lambda each: each.action.pod) == sorted(
            outcomes, key=lambda each: each.action.pod
        )
        evicted = {outcome.action.pod for outcome in outcomes if outcome.result == EVICTED}
        doubted = {outcome.action.pod for outcome in outcomes if "not known" in outcome.message}
        assert evicted <= set(world.times) <= evicted | doubted
        assert world.clock.monotonic() <= 90 + 20

    with asyncio.Runner(loop_factory=partial(looptime.new_event_loop, noop_cycles=1)) as runner:
        runner.run(run())


def removal(action):
    """The same action as a plan has it for a pod that has ended."""
    return msgspec.structs.replace(action, target="")


async def test_terminal_pods_are_removed_without_owner_recovery(golden: Golden):
    world = World(restart=None)
    pods = [world.add("web-1"), *(world.add(f"web-{number}", phase="Failed", ready=False) for number in (2, 3))]
    first, *rest = world.plan(*pods)
    outcomes = await world.execute([first, *map(removal, rest)])
    assert results(outcomes) == [(pod.name, EVICTED, reasons.EVICTED) for pod in pods]
    assert max(world.times.values()) < 30.0
    (note,) = [recorded.note for recorded in world.recorder.events if recorded.regarding.name == "web-2"]
    golden(note)


async def test_removal_of_terminal_pod_does_not_settle_owner():
    world = World(restart=None, recovery_timeout=20.0)
    one, two, ended = world.add("web-1"), world.add("web-2"), world.add("web-3", phase="Failed", ready=False)
    plan = world.plan(one, ended, two)
    outcomes = await world.execute([plan[0], removal(plan[1]), plan[2]], seconds=60)
    assert [outcome.result for outcome in outcomes] == [EVICTED, EVICTED, SKIPPED]
    assert outcomes[2].reason == reasons.OWNER_NOT_SETTLED


async def test_running_pod_is_not_removed_as_terminal():
    world = World()
    outcomes = await world.execute([removal(action) for action in world.plan(world.add("web-1"))])
    assert results(outcomes) == [("web-1", SKIPPED, reasons.PLAN_OUTDATED)]
    assert not world.api.sent("POST", "/eviction")


async def test_remaining_actions_have_the_callers_deadline_reason():
    world = World()
    late = Refusal(reasons.WINDOW_CLOSED, "the policy's window closed before the pod's turn came")
    outcomes = await world.execute(world.plan(world.add("web-1"), world.add("web-2")), seconds=1, deadline_refusal=late)
    assert results(outcomes) == [("web-1", EVICTED, reasons.EVICTED), ("web-2", SKIPPED, reasons.OWNER_NOT_SETTLED)]
    outcomes = await world.execute(world.plan(world.add("db-1", owner="db")), seconds=0, deadline_refusal=late)
    assert results(outcomes) == [("db-1", SKIPPED, reasons.WINDOW_CLOSED)]
