"""Whether nodes live, what is asked and written, and that nothing is done on the word of stale watches."""

import pytest
from msgspec.structs import replace

from tests.fixtures.golden import Golden
from tests.unit.tainting.nodes import DEFAULTS, START, World, a_node, a_pod, apply_all, watched
from trimtab.api import reasons
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import NODE_LEASES, Lease
from trimtab.tainting.lifecycle.node_health import (
    HealthVerdict,
    NodeHealth,
    ProbeResult,
    assess_health,
    extend_health,
    mark_unknown,
    update_health,
)
from trimtab.tainting.lifecycle.planner import plan_lifecycle, spend_token
from trimtab.tainting.lifecycle.pod_readiness import pods_not_ready
from trimtab.tainting.lifecycle.record import (
    LifecycleState,
    build_record,
    decode_record,
    encode_record,
    restore_state,
    shift_times,
)
from trimtab.tainting.lifecycle.zones import QueuedNode, TakenToken

NOW = START + 1000.0


def a_lease(name="n1", renewed=0.0, duration=40):
    return {f"{NODE_LEASES}/{name}": Lease(NODE_LEASES, name, duration=duration, renewed=START + renewed)}


def heard_at(second, stamp=(START, None), uid="uid-n1", **fields):
    return NodeHealth(uid, START + second, *stamp, **fields)


# ── listening ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("known", "node", "renewed", "at"),
    [
        (heard_at(10), a_node(), 0.0, 10.0),
        (heard_at(10), a_node(), 20.0, 1000.0),
        (heard_at(10), a_node(), -3600.0, 1000.0),
        (heard_at(10), a_node(heartbeat=START + 5), 0.0, 1000.0),
        (heard_at(10, uid="another"), a_node(), 990.0, 990.0),
        (None, a_node(), 990.0, 990.0),
        (None, a_node(), 5000.0, 1000.0),
        (None, a_node(heartbeat=START + 995), 990.0, 995.0),
        (heard_at(10, recalled=True), a_node(), 0.0, 10.0),
        (heard_at(10, recalled=True), a_node(), 950.0, 950.0),
        (heard_at(10, recalled=True), a_node(), -3600.0, 10.0),
    ],
    ids=[
        "nothing new",
        "renewed: by our clock",
        "a clock set back says something too",
        "a status posted",
        "another node of the name",
        "first seen: by its own clock",
        "first seen: a fast clock counts as now",
        "first seen: the later of both",
        "written down by an earlier process, and silent since",
        "recorded, and renewed while no operator ran",
        "written down, and renewed by a slow clock: no earlier than what is known",
    ],
)
def test_changed_lease_or_status_updates_health(known, node, renewed, at):
    heard = update_health({"n1": known} if known else {}, [node], a_lease(renewed=renewed), now=NOW)
    assert heard["n1"].at == START + at
    assert not heard["n1"].recalled


def test_silent_new_node_counts_from_creation():
    heard = update_health({}, [a_node(ready=None)], {}, now=NOW)
    assert heard["n1"].at == START - 3600.0


def test_lease_of_former_node_is_ignored():
    node = replace(a_node(ready=None), created=NOW - 5)
    assert update_health({}, [node], a_lease(renewed=0.0), now=NOW)["n1"].at == NOW - 5


def test_deleted_nodes_are_dropped():
    assert update_health({"n9": heard_at(0)}, [], {}, now=NOW) == {}


def test_time_with_stale_watches_is_not_silence():
    assert extend_health({"n1": heard_at(0)}, 30.0, now=NOW)["n1"].at == START + 30.0
    assert extend_health({"n1": heard_at(990)}, 30.0, now=NOW)["n1"].at == NOW


# ── judging ─────────────────────────────────────────────────────────────────────────────────────────────────────────

ANSWER = ProbeResult("uid-n1", (START, None), NOW - 1)
READY, SILENT, NEW = a_node(), a_node(ready="Unknown"), a_node(ready=None)


@pytest.mark.parametrize(
    ("node", "heard", "answer", "verdict"),
    [
        (READY, heard_at(950.0), None, HealthVerdict.HEALTHY),
        (READY, heard_at(949.9), None, HealthVerdict.PROBE),
        (READY, heard_at(949.9), ANSWER, HealthVerdict.UNKNOWN),
        (READY, heard_at(949.9), replace(ANSWER, at=NOW - 11), HealthVerdict.PROBE),
        (READY, heard_at(949.9), replace(ANSWER, uid="another"), HealthVerdict.PROBE),
        (READY, heard_at(949.9), replace(ANSWER, stamp=(START + 9, None)), HealthVerdict.WATCH_BEHIND),
        (READY, heard_at(949.9), replace(ANSWER, stamp=(None, None)), HealthVerdict.WATCH_BEHIND),
        (READY, heard_at(999.5), replace(ANSWER, stamp=(START + 9, None)), HealthVerdict.HEALTHY),
        (SILENT, heard_at(0.0), None, HealthVerdict.ALREADY_UNKNOWN),
        (NEW, heard_at(945.0), None, HealthVerdict.HEALTHY),
        (NEW, heard_at(939.0), None, HealthVerdict.PROBE),
        (READY, heard_at(0.0, believed=NOW), None, HealthVerdict.HEALTHY),
        (READY, heard_at(0.0, believed=NOW - 1), None, HealthVerdict.PROBE),
        (a_node(ready="False"), heard_at(0.0), ANSWER, HealthVerdict.UNKNOWN),
    ],
    ids=[
        "within its grace period, to the second",
        "beyond it: the API server is asked",
        "the API server knows no more",
        "an old answer is none",
        "an answer about another node of the name is none",
        "the API server knows more: the watches are behind",
        "the Lease is gone, and the watches have not told",
        "the watches have caught up since",
        "Unknown already: no pod is marked again",
        "a new node has its startup grace period",
        "and no longer",
        "this process is too young to believe it",
        "and now it is not",
        "not ready, and then silent",
    ],
)
def test_health_verdicts(node, heard, answer, verdict):
    assert assess_health(node, heard, answer, DEFAULTS, now=NOW).verdict is verdict


def test_slow_renewal_extends_doubt_to_two_renewals():
    world = {"n1": a_node()}
    [first] = update_health({}, world.values(), a_lease(renewed=0.0, duration=120), now=NOW).values()
    assert first.believed == NOW + 60.0
    assert not replace(first, at=NOW - 59.0, believed=0.0).in_doubt(NOW)
    assert replace(first, at=NOW - 61.0, believed=0.0).in_doubt(NOW)


# ── marking ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def marked(node, heard=None):
    judgement = assess_health(node, heard or heard_at(0), ANSWER, DEFAULTS, now=NOW)
    return mark_unknown(node, judgement, now=NOW)


def conditions_after(node):
    body = {
        "metadata": {"uid": node.uid, "resourceVersion": node.resource_version},
        "status": {"conditions": [{"type": each.type, "status": each.status} for each in node.conditions]}
        if node.conditions
        else {},
    }
    apply_all(body, marked(node).operations)
    return {each["type"]: (each["status"], each.get("reason")) for each in body["status"]["conditions"]}


def test_kubelet_conditions_become_unknown():
    node = a_node(conditions={"NetworkUnavailable": "False"})
    said = ("Unknown", "NodeStatusUnknown")
    assert conditions_after(node) == {
        "NetworkUnavailable": ("False", None),
        "MemoryPressure": said,
        "DiskPressure": said,
        "PIDPressure": said,
        "Ready": said,
    }


def test_missing_conditions_are_never_updated():
    said = ("Unknown", "NodeStatusNeverUpdated")
    assert conditions_after(a_node(ready=None)) == dict.fromkeys(
        ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure"), said
    )


def test_unknown_node_is_not_written_again():
    judgement = assess_health(SILENT, heard_at(0), ANSWER, DEFAULTS, now=NOW)
    assert judgement.verdict is HealthVerdict.ALREADY_UNKNOWN


def test_mark_has_upstream_reason(golden: Golden):
    mark = marked(READY)
    assert mark.reason == reasons.NODE_STATUS_UNKNOWN
    golden(mark.message)
    assert {"op": "test", "path": "/metadata/resourceVersion", "value": "1"} in mark.operations


@pytest.mark.parametrize(
    ("node", "pod", "is_marked"),
    [
        (a_node(ready="Unknown", since=100), a_pod("web", "n1"), True),
        (a_node(ready="False", since=100), a_pod("web", "n1"), True),
        (a_node(ready="False", since=100), a_pod("web", "n1", ready_since=101), False),
        (a_node(ready="Unknown", since=100), a_pod("web", "n1", ready=False), False),
        (a_node(ready="Unknown", since=100), a_pod("web", "n1", phase="Succeeded"), False),
        (a_node(ready="True"), a_pod("web", "n1"), False),
        (a_node(ready=None), a_pod("web", "n1"), False),
        (a_node(ready="Unknown", since=100), a_pod("web", "n2"), False),
    ],
    ids=[
        "not heard of",
        "not ready",
        "its kubelet has said later that the pod is ready",
        "not ready anyway",
        "at its end",
        "the node is ready",
        "a node that has just joined",
        "on another node",
    ],
)
def test_pods_on_not_ready_nodes_are_marked(node, pod, is_marked):
    cluster = Snapshot([node, a_node("n2"), pod])
    plan = plan_lifecycle(*watched(node, a_node("n2"), pod), DEFAULTS, now=NOW)
    found = [
        each.name
        for name, since in plan.failed.items()
        for each in pods_not_ready((pod for _, pod in cluster.items_on(name)), since=since)
    ]
    assert found == (["web"] if is_marked else [])


# ── watches ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_stale_watches_hold_and_extend_health():
    live = World([a_node(f"n{place}") for place in range(6)])
    live.run(15)
    live.watch, live.frozen = live.second, dict(live.leases)
    live.run(200)
    assert live.plan.held == reasons.STALE_WATCHES
    assert not live.unknown
    assert not live.tainted
    live.watch = None
    live.run(300)
    assert not live.unknown
    assert not live.asked


def test_node_failed_during_stale_watches_gets_remaining_grace():
    live = World([a_node(f"n{place}") for place in range(6)])
    live.run(15)
    live.fail("n0")
    live.watch, live.frozen = live.second, dict(live.leases)
    live.run(100)
    live.watch = None
    live.run(200)
    assert live.tainted == [("n0", 10 + 50 + (101 - 15) + 2)]


def test_frozen_watch_marks_no_node():
    nodes = {f"n{place}": a_node(f"n{place}", heartbeat=START) for place in range(6)}
    frozen = [lease for name in nodes for lease in a_lease(name, 0.0).values()]
    memory = LifecycleState()
    for second in range(200):
        now = START + second
        stamp = (START + second // 10 * 10, START)
        responses = {name: ProbeResult(node.uid, stamp, now) for name, node in nodes.items() if second > 50}
        plan = plan_lifecycle(
            *watched(*nodes.values(), *frozen),
            DEFAULTS,
            now=now,
            memory=memory,
            watches_verified_at=now,
            probe_results=responses,
        )
        memory = plan.memory
        assert not plan.unknown
        assert not plan.taints
    assert plan.held == reasons.WATCHES_BEHIND


def test_no_mark_without_probe_result():
    node, lease = a_node(heartbeat=START), a_lease()
    memory = LifecycleState()
    for second in range(0, 500, 5):
        plan = plan_lifecycle(
            *watched(node, a_node("n2"), *lease.values()), DEFAULTS, now=START + second, memory=memory
        )
        memory = plan.memory
        assert not plan.unknown
    assert "n1" in plan.probes


# ── what is written down ────────────────────────────────────────────────────────────────────────────────────────────


def test_healthy_cluster_has_empty_record():
    live = World([a_node(f"n{place}") for place in range(6)])
    live.run(100)
    assert build_record(live.memory, live.nodes, now=START + 100) == LifecycleState()


def test_record_changes_only_with_events():
    live = World([a_node(f"n{place}") for place in range(6)])
    live.fail("n0", "n1")
    texts = []
    live.run(
        200, lambda each: texts.append(encode_record(build_record(each.memory, each.nodes, now=START + each.second)))
    )
    assert len(set(texts)) <= 6


def test_record_round_trips():
    live = World([a_node(f"n{place}") for place in range(6)])
    live.fail("n0", "n1")
    live.run(45)
    record = build_record(live.memory, live.nodes, now=START + 45)
    assert decode_record(encode_record(record)) == record
    assert set(record.heard) == {"n0", "n1"}
    assert record.heard["n0"].at == START
    assert build_record(restore_state(record, now=START + 45), live.nodes, now=START + 45) == record


def test_record_omits_data_in_node_objects():
    live = World([a_node(f"n{place}") for place in range(6)])
    live.fail("n0", "n1")
    live.run(60)
    assert "n1" in live.memory.queue
    assert build_record(live.memory, live.nodes, now=START + 60) == LifecycleState(spent={"": START + 52})


def test_record_has_place_of_node_with_changed_condition():
    nodes = {name: a_node(name, ready="False", since=since) for name, since in (("n1", 10), ("n2", 20), ("n3", 30))}
    well = [a_node(f"well{place}") for place in range(9)]
    made = plan_lifecycle(*watched(*nodes.values(), *well), DEFAULTS, now=NOW)
    assert list(made.taken) == ["n1"]
    nodes["n2"] = a_node("n2", ready="Unknown", since=1001)
    record = build_record(made.memory, nodes, now=NOW + 1)
    assert {name: place.since for name, place in record.queue.items()} == {"n2": START + 20}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"silent": 1}'], ids=["empty", "cut off", "a list", "other types"])
def test_invalid_record_counts_as_empty(text):
    assert decode_record(text) == LifecycleState()


def test_future_record_times_count_as_now():
    record = decode_record(
        '{"spent": {"z": 99999999999}, "back": 99999999999, "silent": {"n1": {"uid": "u", "heard": 99999999999}}}'
    )
    memory = restore_state(record, now=NOW)
    assert (memory.spent["z"], memory.back, memory.heard["n1"].at) == (NOW, NOW, NOW)


def test_token_is_spent_when_the_taint_may_be_written():
    nodes = [a_node(f"n{place}", ready="Unknown" if place < 2 else "True") for place in range(6)]
    plan = plan_lifecycle(*watched(*nodes), DEFAULTS, now=NOW)
    assert list(plan.taken) == ["n0"]
    assert plan.memory.spent == {}
    later = replace(plan.memory, spent={"": NOW + 10})
    assert spend_token(plan.memory, plan.taken["n0"], in_flight=1, at=NOW + 7).spent == {"": NOW + 7}
    assert spend_token(later, plan.taken["n0"], in_flight=1, at=NOW + 7) == later


def test_token_is_not_spent_in_the_future_if_the_clock_was_set_back_before_the_response() -> None:
    token = TakenToken(zone="", rate=0.1, spent=NOW)
    assert spend_token(LifecycleState(), token, in_flight=1, at=NOW - 3600).spent == {"": NOW - 3600}


def test_outstanding_request_blocks_the_zone():
    nodes = [a_node(f"n{place}", ready="Unknown" if place < 2 else "True") for place in range(6)]
    plan = plan_lifecycle(*watched(*nodes), DEFAULTS, now=NOW, in_flight={"": 1})
    assert not plan.taken
    assert [each.due for each in plan.waiting] == [NOW + 10, NOW + 20]
    assert plan_lifecycle(*watched(*nodes), DEFAULTS, now=NOW, in_flight={"other": 1}).taken


def test_record_of_restored_state_with_shifted_times_round_trips():
    record = LifecycleState(heard={"n1": NodeHealth("uid-n1", START)})
    state = shift_times(restore_state(record, now=NOW), 5.0)
    record = build_record(state, {"n1": a_node("n1")}, now=NOW)
    assert record.heard["n1"].at == START + 5
    assert decode_record(encode_record(record)) == record


def test_record_has_the_fields_of_earlier_versions():
    state = LifecycleState(
        heard={"n1": NodeHealth("u1", 10.0, 8.0, 9.0), "n2": NodeHealth("u2", 11.0)},
        queue={"n3": QueuedNode("u3", 12.0)},
        spent={"z": 13.0},
        all_down=True,
        back=14.0,
        stale_since=15.0,
    )
    text = (
        '{"silent":{"n1":{"uid":"u1","heard":10.0,"renewed":8.0,"heartbeat":9.0},"n2":{"uid":"u2","heard":11.0}},'
        '"queue":{"n3":{"uid":"u3","since":12.0}},"spent":{"z":13.0},"allDown":true,"back":14.0,"blindSince":15.0}'
    )
    assert encode_record(state) == text
    assert decode_record(text) == state
