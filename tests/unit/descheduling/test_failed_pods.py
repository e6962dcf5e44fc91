"""RemoveFailedPods: which failed pods are removed, and which are left to look at."""

from __future__ import annotations

import pytest

from tests.builders import budget, node, pod
from tests.fixtures.golden import Golden
from tests.unit.descheduling.planning import LIFE_TIME, ago, failed, kept, life_time, messages, moves, nodes, plan, web

HOUR = 3600


def lost(name: str = "a", age: float = 2 * HOUR, reason: str = ""):
    """A pod of a ReplicaSet that has failed."""
    return web(name, "n1").created(ago(age)).phase("Failed", reason)


def names(plan):
    return [action.pod for action in plan.actions]


def test_failed_pod_is_deleted_without_target(golden: Golden):
    done = plan([node("n1").cordoned(), lost(reason="Evicted").container_state("Error", exit_code=1)], failed())
    (action,) = done.actions
    assert (action.pod, action.node, action.target, action.reason) == ("a", "n1", "", "PodFailed")
    golden(action.message)
    assert done.document()["actions"] == [
        {
            "action": "Evict",
            "policy": "default",
            "strategy": "RemoveFailedPods",
            "namespace": "shop",
            "pod": "a",
            "node": "n1",
            "target": "",
            "reason": "PodFailed",
            "message": action.message,
            "uid": "pod-shop-a",
            "owner": "ReplicaSet/web",
        }
    ]


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        pytest.param([lost(age=HOUR)], ["a"], id="as old as it must be"),
        pytest.param([web("a", "n1").created(ago(2 * HOUR))], [], id="it runs"),
        pytest.param([lost().phase("Succeeded")], [], id="it has succeeded"),
        pytest.param([lost().deleted(ago(1))], [], id="it is going"),
        pytest.param(
            [lost("a", 2 * HOUR), lost("b", 4 * HOUR), lost("c", 3 * HOUR).priority(9)],
            ["b", "c", "a"],
            id="the oldest first",
        ),
        pytest.param([lost("b"), lost("a")], ["a", "b"], id="of one age by name"),
        pytest.param(
            [lost(), budget("web").selecting(app="web").allowing(0)], ["a"], id="PodDisruptionBudgets are not checked"
        ),
    ],
)
def test_old_failed_pods_are_deleted(things, expected):
    assert names(plan([*nodes("n1"), *things], failed())) == expected


@pytest.mark.parametrize(
    ("builder", "params", "recorded"),
    [
        pytest.param(
            lost(age=HOUR - 1),
            {},
            "the pod has failed; created 3599s ago, minPodLifetimeSeconds is 3600",
            id="too young",
        ),
        pytest.param(
            lost(age=5),
            {"minPodLifetimeSeconds": 6},
            "the pod has failed; created 5s ago, minPodLifetimeSeconds is 6",
            id="younger than the policy's minimum",
        ),
        pytest.param(
            web("a", "n1").phase("Failed"),
            {},
            "the pod has failed; creation time unknown, minPodLifetimeSeconds is 3600",
            id="of unknown age",
        ),
    ],
)
def test_recently_failed_pods_are_kept(builder, params, recorded):
    done = plan([*nodes("n1"), builder], failed(**params))
    assert kept(done) == {"a": "PodTooYoung"}
    assert messages(done) == {"a": recorded}


def test_all_failed_pods_are_deleted_without_minimum_age():
    pods = [web("a", "n1").phase("Failed"), lost("b", 0)]
    assert names(plan([*nodes("n1"), *pods], failed(minPodLifetimeSeconds=0))) == ["a", "b"]


ENDED = lost().container_state("OOMKilled", exit_code=137)
IN_INIT = lost().container_state("Error", exit_code=2, of="initContainer")


@pytest.mark.parametrize(
    ("builder", "params", "expected"),
    [
        pytest.param(lost(reason="Evicted"), {"reasons": ["Evicted", "x"]}, True, id="the pod's reason"),
        pytest.param(lost(reason="Evicted"), {"reasons": ["x"]}, False, id="another reason"),
        pytest.param(lost(), {"reasons": ["x"]}, False, id="no reason"),
        pytest.param(ENDED, {"reasons": ["OOMKilled"]}, True, id="a container's reason"),
        pytest.param(
            lost().container_state("CreateContainerConfigError"),
            {"reasons": ["CreateContainerConfigError"]},
            True,
            id="a container that never started",
        ),
        pytest.param(ENDED, {"exitCodes": [1, 137]}, True, id="an exit code"),
        pytest.param(ENDED, {"exitCodes": [1]}, False, id="another exit code"),
        pytest.param(lost(), {"exitCodes": [0]}, False, id="no container has terminated"),
        pytest.param(ENDED, {"reasons": ["OOMKilled"], "exitCodes": [1]}, False, id="both must hold"),
        pytest.param(IN_INIT, {"exitCodes": [2]}, False, id="an init container"),
        pytest.param(
            IN_INIT, {"exitCodes": [2], "includingInitContainers": True}, True, id="an init container, included"
        ),
        pytest.param(IN_INIT, {"reasons": ["Error"], "includingInitContainers": True}, True, id="its reason, included"),
        pytest.param(
            lost().container_state("Error", exit_code=2, of="ephemeralContainer"),
            {"exitCodes": [2], "includingInitContainers": True},
            False,
            id="never an ephemeral container",
        ),
        pytest.param(lost(), {"excludeOwnerKinds": ["ReplicaSet"]}, False, id="of an owner that is left alone"),
        pytest.param(lost(), {"excludeOwnerKinds": ["Job"]}, True, id="of another owner"),
    ],
)
def test_only_matching_failed_pods_are_selected(builder, params, expected):
    done = plan([*nodes("n1"), builder], failed(**params))
    assert names(done) == (["a"] if expected else [])
    assert not done.kept


@pytest.mark.parametrize(
    ("builder", "spec", "expected"),
    [
        pytest.param(pod("a").on("n1").created(ago(2 * HOUR)).phase("Failed"), {}, "BarePod", id="a bare pod"),
        pytest.param(
            pod("a").on("n1").created(ago(2 * HOUR)).phase("Failed"),
            {"protections": {"disabled": ["FailedBarePods"]}},
            None,
            id="a bare pod that the policy gives up",
        ),
        pytest.param(lost().volume("emptyDir"), {}, "LocalStorage", id="its data may be wanted"),
        pytest.param(
            lost().annotations({"descheduler.alpha.kubernetes.io/evict": "false"}),
            {},
            "EvictAnnotation",
            id="it says no",
        ),
        pytest.param(lost().priority(5), {"priorityThreshold": {"value": 5}}, "PriorityTooHigh", id="its priority"),
        pytest.param(lost(), {"protections": {"minReplicas": 2}}, "TooFewReplicas", id="the last of its owner"),
    ],
)
def test_protections_apply_to_failed_pods(builder, spec, expected):
    done = plan([*nodes("n1"), builder], failed(), **spec)
    assert kept(done) == ({"a": expected} if expected else {})
    assert names(done) == ([] if expected else ["a"])


def test_limits_count_deletions():
    done = plan([*nodes("n1"), lost("a"), lost("b", 3 * HOUR)], failed(), limits={"perNode": 1})
    assert names(done) == ["b"]
    assert kept(done) == {"a": "LimitReached"}


def test_pod_deleted_by_another_strategy_is_not_deleted_again():
    done = plan([*nodes("n1"), lost()], {**failed(), **life_time(60)})
    assert [(action.strategy, action.target) for action in done.actions] == [(LIFE_TIME, "")]
    assert moves(done) == [("a", "n1", "")]
    assert not done.kept
