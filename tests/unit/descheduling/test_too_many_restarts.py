"""RemovePodsHavingTooManyRestarts: pods that start again and again start anew, elsewhere where another node is free."""

from __future__ import annotations

import pytest

from tests.builders import budget, node
from tests.fixtures.golden import Golden
from tests.unit.descheduling.planning import ago, kept, messages, moves, nodes, plan, restarts, web


def ill(name: str = "a", times: int = 100, on: str = "n1"):
    return web(name, on).restarted(times)


def of_init(name: str, times: int, init: int):
    """A pod whose init container has been restarted as well."""
    return ill(name, times).merge(status={"initContainerStatuses": [{"name": "first", "restartCount": init}]})


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        pytest.param([ill(times=99)], [], id="below the threshold"),
        pytest.param([ill(times=100)], [("a", "n1", "n2")], id="at the threshold"),
        pytest.param([ill(times=101)], [("a", "n1", "n2")], id="above the threshold"),
        pytest.param(
            [ill("a", 100), ill("b", 300), ill("c", 200)],
            [("b", "n1", "n2"), ("c", "n1", "n2"), ("a", "n1", "n2")],
            id="the most restarts first",
        ),
        pytest.param(
            [ill("a", 100).priority(5), ill("b", 100), ill("c", 200).priority(9)],
            [("c", "n1", "n2"), ("b", "n1", "n2"), ("a", "n1", "n2")],
            id="restarts precede priority",
        ),
        pytest.param(
            [ill("a").created(ago(10)), ill("b").created(ago(20))],
            [("b", "n1", "n2"), ("a", "n1", "n2")],
            id="of equal rank the oldest",
        ),
        pytest.param([of_init("a", 60, 40)], [], id="init containers are not counted"),
        pytest.param([ill().phase("Failed")], [], id="a terminated pod is ignored"),
        pytest.param([ill().deleted(ago(1))], [], id="a pod that is going"),
    ],
)
def test_pods_with_too_many_restarts_are_evicted(things, expected):
    assert moves(plan([*nodes("n1", "n2"), *things], restarts(100))) == expected


def test_init_container_restarts_count_if_enabled(golden: Golden):
    done = plan([*nodes("n1", "n2"), of_init("a", 60, 40)], restarts(100, includingInitContainers=True))
    assert moves(done) == [("a", "n1", "n2")]
    assert done.actions[0].reason == "TooManyRestarts"
    golden(done.actions[0].message)


WAITING = ill("waiting").container_state("CrashLoopBackOff")
IN_INIT = ill("in-init").phase("Pending").container_state("CrashLoopBackOff", of="initContainer")


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        pytest.param({}, ["in-init", "pending", "running", "waiting"], id="any state"),
        pytest.param({"states": ["Running"]}, ["running", "waiting"], id="phase Running"),
        pytest.param({"states": ["CrashLoopBackOff"]}, ["waiting"], id="a container waits"),
        pytest.param(
            {"states": ["CrashLoopBackOff"], "includingInitContainers": True},
            ["in-init", "waiting"],
            id="an init container waits",
        ),
        pytest.param(
            {"states": ["CrashLoopBackOff", "Running"]}, ["running", "waiting"], id="one of two states suffices"
        ),
    ],
)
def test_only_pods_in_given_states_are_evicted(params, expected):
    pending = ill("pending").phase("Pending").container_state("ContainerCreating")
    pods = [each.created(ago(900)) for each in (WAITING, IN_INIT, pending, ill("running"))]
    done = plan([*nodes("n1", "n2"), *pods], restarts(100, **params))
    assert sorted(action.pod for action in done.actions) == expected


@pytest.mark.parametrize(
    ("things", "expected", "stays"),
    [
        pytest.param(
            [*nodes("n1", "n2"), web("x", "n2", owner="x").cpu("3"), ill().cpu("1")],
            [("a", "n1", "n2")],
            {},
            id="another node, although its own has more free capacity",
        ),
        pytest.param(
            [*nodes("n1", "n2"), web("x", "n2", owner="x").cpu("4"), ill().cpu("1")],
            [("a", "n1", "n1")],
            {},
            id="its own node where the others are full",
        ),
        pytest.param([node("n1").cordoned(), ill()], [], {"a": "NoPlace"}, id="no node fits"),
        pytest.param(
            [node("n1").cordoned(), node("n2").allocatable(pods=1), ill("a"), ill("b", 200)],
            [("b", "n1", "n2")],
            {"a": "NoPlace"},
            id="free capacity is reserved for one pod",
        ),
        pytest.param(
            [*nodes("n1", "n2"), ill().anti_affinity(), web("b", "n2")],
            [("a", "n1", "n1")],
            {},
            id="it may not be with its sibling",
        ),
    ],
)
def test_pod_is_kept_if_no_node_can_run_replacement(things, expected, stays):
    done = plan(things, restarts(100))
    assert moves(done) == expected
    assert kept(done) == stays


def test_protected_pods_are_kept_with_reason():
    objects = [*nodes("n1", "n2"), budget("web").selecting(app="web").allowing(0), ill()]
    done = plan(objects, restarts(100))
    assert kept(done) == {"a": "DisruptionBudget"}
    assert "allows no disruption" in messages(done)["a"]


def test_unhealthy_pod_is_evicted_if_pdb_always_allows_it():
    crashing = ill().condition("Ready", "False")
    guard = budget("web").selecting(app="web").allowing(0).unhealthy_policy("AlwaysAllow")
    assert moves(plan([*nodes("n1", "n2"), guard, crashing], restarts(100))) == [("a", "n1", "n2")]


def test_limit_keeps_pods_with_fewest_restarts():
    done = plan([*nodes("n1", "n2"), ill("a", 100), ill("b", 300)], restarts(100), limits={"perCycle": 1})
    assert [action.pod for action in done.actions] == ["b"]
    assert kept(done) == {"a": "LimitReached"}
