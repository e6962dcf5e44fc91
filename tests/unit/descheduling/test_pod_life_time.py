"""PodLifeTime: which pods have lived too long, and what becomes of them."""

from __future__ import annotations

import pytest

from tests.builders import node, pod
from tests.fixtures.golden import Golden
from tests.unit.descheduling.planning import DUPLICATES, ago, kept, life_time, messages, moves, nodes, plan, web
from trimtab.descheduling.strategies import restart_pods

DAY = 86_400


def old(name: str = "a", age: float = 2 * DAY, on: str = "n1"):
    return web(name, on).created(ago(age))


def names(plan):
    return [action.pod for action in plan.actions]


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        pytest.param([old(age=DAY)], [], id="as old as allowed"),
        pytest.param([old(age=DAY + 0.9)], [], id="a part of a second older"),
        pytest.param([old(age=DAY + 1)], ["a"], id="a second older"),
        pytest.param([old(age=-3 * DAY)], [], id="of the future"),
        pytest.param([web("a", "n1")], [], id="of unknown age"),
        pytest.param([old(on="")], [], id="without a node"),
        pytest.param(
            [old("a", 2 * DAY), old("b", 4 * DAY, "n2"), old("c", 3 * DAY)],
            ["b", "c", "a"],
            id="the oldest of the cluster first",
        ),
        pytest.param(
            [old("a").priority(5), old("b"), old("c", 3 * DAY).priority(9)],
            ["c", "b", "a"],
            id="age precedes priority",
        ),
        pytest.param([old("b"), old("a")], ["a", "b"], id="of one age and priority by name"),
        pytest.param([old().deleted(ago(1))], [], id="a pod that is going"),
    ],
)
def test_old_pods_are_evicted(things, expected):
    assert names(plan([*nodes("n1", "n2"), *things], life_time(DAY))) == expected


def test_message_has_ages(golden: Golden):
    (action,) = plan([*nodes("n1", "n2"), old()], life_time(DAY)).actions
    assert action.reason == "PodLifeTimeExceeded"
    golden(action.message)


@pytest.mark.parametrize(
    ("things", "expected", "stays"),
    [
        pytest.param([*nodes("n1"), old()], [("a", "n1", "n1")], {}, id="on its own node, the only one"),
        pytest.param(
            [*nodes("n1"), old("a").cpu("4")], [("a", "n1", "n1")], {}, id="on its own node, which it frees by going"
        ),
        pytest.param(
            [*nodes("n1", "n2"), web("x", "n1", owner="x").cpu("2"), old().cpu("1")],
            [("a", "n1", "n2")],
            {},
            id="where the scheduler would likely put it",
        ),
        pytest.param([node("n1").cordoned(), old()], [], {"a": "NoPlace"}, id="fits on no node: its node is cordoned"),
        pytest.param(
            [node("n1").not_ready(), old()], [], {"a": "NoPlace"}, id="fits on no node: its node is not ready"
        ),
        pytest.param(
            [node("n1").labels(disk="hdd"), old().node_selector(disk="ssd")],
            [],
            {"a": "NoPlace"},
            id="fits on no node: its node has changed",
        ),
        pytest.param([*nodes("n1"), old().owned_by("Job", "j")], [("a", "n1", "n1")], {}, id="more than one owner"),
        pytest.param(
            [*nodes("n1"), pod("a").on("n1").created(ago(2 * DAY)).owned_by("Job", "j")],
            [("a", "n1", "n1")],
            {},
            id="a Job recreates its pod",
        ),
        pytest.param([*nodes("n1"), pod("a").on("n1").created(ago(2 * DAY))], [], {"a": "BarePod"}, id="a bare pod"),
    ],
)
def test_replacement_may_use_same_node(things, expected, stays):
    done = plan(things, life_time(DAY))
    assert moves(done) == expected
    assert kept(done) == stays


@pytest.mark.parametrize(
    ("state", "builder", "expected"),
    [
        pytest.param("Pending", old().phase("Pending"), "phase Pending", id="a phase"),
        pytest.param("Running", old().phase("Pending"), None, id="another phase"),
        pytest.param("NodeLost", old().phase("Unknown", "NodeLost"), "reason NodeLost", id="the pod's reason"),
        pytest.param(
            "ImagePullBackOff",
            old().container_state("ImagePullBackOff"),
            "container main is waiting: ImagePullBackOff",
            id="a container waits",
        ),
        pytest.param(
            "OOMKilled",
            old().container_state().container_state("OOMKilled", exit_code=137),
            "container main-1 terminated: OOMKilled (exit code 137)",
            id="a container has terminated",
        ),
        pytest.param(
            "Completed",
            old().container_state("Completed", exit_code=0, of="initContainer"),
            None,
            id="an init container",
        ),
        pytest.param(
            "Error", old().container_state("Error", exit_code=1, of="ephemeralContainer"), None, id="an ephemeral one"
        ),
    ],
)
def test_states_match_phases_and_reasons(state, builder, expected):
    done = plan([*nodes("n1"), builder], life_time(DAY, states=[state]))
    recorded = [action.message.split("; ")[1] for action in done.actions]
    assert recorded == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("of", "params", "expected"),
    [
        pytest.param("initContainer", {"includingInitContainers": True}, ["a"], id="an init container"),
        pytest.param("initContainer", {"includingEphemeralContainers": True}, [], id="an init container, not included"),
        pytest.param("ephemeralContainer", {"includingEphemeralContainers": True}, ["a"], id="an ephemeral container"),
        pytest.param("ephemeralContainer", {"includingInitContainers": True}, [], id="an ephemeral one, not included"),
    ],
)
def test_init_and_ephemeral_containers_count_if_enabled(of, params, expected):
    builder = old().container_state("Error", exit_code=1, of=of)
    assert names(plan([*nodes("n1"), builder], life_time(states=["Error"], **params))) == expected


@pytest.mark.parametrize(
    ("of", "params", "expected"),
    [
        pytest.param("container", {}, ["a"], id="a container"),
        pytest.param("initContainer", {}, [], id="an init container"),
        pytest.param("initContainer", {"includingInitContainers": True}, ["a"], id="an init container, included"),
        pytest.param("ephemeralContainer", {"includingEphemeralContainers": True}, [], id="never an ephemeral one"),
    ],
)
def test_exit_codes_match_terminated_containers(of, params, expected):
    builder = old().container_state("Error", exit_code=3, of=of)
    done = plan([*nodes("n1"), builder], life_time(exitCodes=[2, 3], **params))
    assert names(done) == expected
    assert not names(plan([*nodes("n1"), builder], life_time(exitCodes=[1], **params)))


def test_state_alone_selects_pods(golden: Golden):
    (action,) = plan([*nodes("n1"), old().container_state("Error", exit_code=3)], life_time(exitCodes=[3])).actions
    assert action.reason == "PodStateMatched"
    golden(action.message)


READY_FOR_AN_HOUR = old().ready(since=ago(3600))


@pytest.mark.parametrize(
    ("builder", "wanted", "expected"),
    [
        pytest.param(READY_FOR_AN_HOUR, {"type": "Ready"}, True, id="the type"),
        pytest.param(READY_FOR_AN_HOUR, {"type": "Ready", "status": "False"}, False, id="another status"),
        pytest.param(
            READY_FOR_AN_HOUR, {"type": "Ready", "minTimeSinceLastTransitionSeconds": 3600}, True, id="long enough"
        ),
        pytest.param(
            READY_FOR_AN_HOUR, {"type": "Ready", "minTimeSinceLastTransitionSeconds": 3601}, False, id="not long enough"
        ),
        pytest.param(READY_FOR_AN_HOUR, {"minTimeSinceLastTransitionSeconds": 60}, True, id="whichever condition"),
        pytest.param(
            old().condition("Ready", "False").condition("PodScheduled", "True", since=ago(60)),
            {"type": "PodScheduled", "status": "True", "minTimeSinceLastTransitionSeconds": 60},
            True,
            id="a standard condition that is True",
        ),
        pytest.param(
            old().started(ago(60)).condition("PodScheduled", "True", since=ago(3600)),
            {"type": "PodScheduled", "status": "True", "minTimeSinceLastTransitionSeconds": 61},
            False,
            id="of a ready pod it counts from its start",
        ),
        pytest.param(
            old()
            .phase("Succeeded")
            .condition("Ready", "False")
            .condition("Initialized", "True", reason="PodCompleted"),
            {"reason": "PodCompleted", "status": "True"},
            True,
            id="the reason of a standard condition that is True",
        ),
        pytest.param(
            old().condition("example.com/gate", "False", reason="Late", since=ago(60)),
            {"type": "example.com/gate", "status": "False", "reason": "Late"},
            True,
            id="a condition of another controller",
        ),
        pytest.param(
            old().condition("Ready", "False", since=ago(-60)),
            {"type": "Ready", "minTimeSinceLastTransitionSeconds": 0},
            False,
            id="since the future",
        ),
        pytest.param(
            old().merge(status={"conditions": [{"type": "Ready", "status": "False"}]}),
            {"type": "Ready", "minTimeSinceLastTransitionSeconds": 0},
            False,
            id="unknown start time",
        ),
    ],
)
def test_conditions_are_compared_field_by_field(builder, wanted, expected):
    done = plan([*nodes("n1"), builder], life_time(conditions=[{"type": "Never"}, wanted]))
    assert names(done) == (["a"] if expected else [])


def test_all_set_parameters_must_match(golden: Golden):
    both = old("both").container_state("Error", exit_code=1).condition("Ready", "False", since=ago(60))
    state = old("state").container_state("Error", exit_code=1).ready()
    wanted = life_time(DAY, states=["Error"], exitCodes=[1], conditions=[{"type": "Ready", "status": "False"}])
    done = plan([*nodes("n1"), both, state, old("age")], wanted)
    (action,) = done.actions
    golden(action.message)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        pytest.param({}, ["a", "j"], id="all"),
        pytest.param({"include": ["Job"]}, ["j"], id="included"),
        pytest.param({"exclude": ["Job"]}, ["a"], id="excluded"),
    ],
)
def test_owner_kinds_filter_pods(kinds, expected):
    job = pod("j").on("n1").created(ago(2 * DAY)).owned_by("Job", "j")
    assert sorted(names(plan([*nodes("n1"), old(), job], life_time(DAY, ownerKinds=kinds)))) == expected


def test_terminated_pod_is_deleted(golden: Golden):
    done = plan([node("n1").cordoned(), old().phase("Succeeded")], life_time(DAY))
    assert moves(done) == [("a", "n1", "")]
    golden(done.actions[0].message)


def test_moved_pod_is_not_evicted_for_age():
    objects = [node("n1").labels(disk="hdd"), node("n2").labels(disk="ssd"), old().node_selector(disk="ssd")]
    done = plan(objects, {**life_time(DAY), "RemovePodsViolatingNodeAffinity": {}})
    assert [(action.strategy, action.pod) for action in done.actions] == [("RemovePodsViolatingNodeAffinity", "a")]
    assert not done.kept


def test_duplicates_are_computed_after_restarts():
    objects = [*nodes("n1", "n2"), old("a"), web("b", "n1"), web("c", "n1")]
    done = plan(objects, {**life_time(DAY), DUPLICATES: {}})
    assert [(action.strategy, action.pod, action.target) for action in done.actions] == [("PodLifeTime", "a", "n2")]


def test_limit_keeps_youngest_pods(golden: Golden):
    done = plan([*nodes("n1", "n2"), old("a"), old("b", 3 * DAY, "n2")], life_time(DAY), limits={"perCycle": 1})
    assert names(done) == ["b"]
    assert kept(done) == {"a": "LimitReached"}
    golden(messages(done)["a"])


def test_beyond_foreseen_pods_keep_their_node(monkeypatch):
    """As long as their nodes take them. A plan that is not acted on for hours need not contain more."""
    monkeypatch.setattr(restart_pods, "FORESEEN", 1)
    objects = [*nodes("n1", "n2"), web("x", "n1", owner="x").cpu("2"), node("n3").cordoned()]
    pods = [old("a", 5 * DAY), old("b", 4 * DAY), old("c", 3 * DAY, "n3"), old("d").claim("data")]
    done = plan([*objects, *pods], life_time(DAY))
    assert moves(done) == [("a", "n1", "n2"), ("b", "n1", "n1"), ("c", "n3", "n2")]
    assert kept(done) == {"d": "NoPlace"}
