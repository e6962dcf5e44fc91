"""LowNodeUtilization: which nodes give pods, which pods, and who gets them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import HOSTNAME, NodeBuilder, PodBuilder, budget, node, pod, replica_set, selector
from tests.fixtures.golden import Golden
from tests.unit.descheduling.planning import (
    DUPLICATES,
    PREFERRED,
    deviation,
    kept,
    messages,
    moves,
    node_affinity,
    plan,
    utilization,
    web,
)

CPU = utilization({"cpu": 20}, {"cpu": 50})
ALL = utilization({"cpu": 20, "memory": 20, "pods": 20}, {"cpu": 50, "memory": 50, "pods": 50})


def big(name: str, **amounts: Any) -> NodeBuilder:
    """A node of 10 cpu, 10Gi and 10 pods: shares are easily read."""
    return node(name).allocatable(**{"cpu": "10", "memory": "10Gi", "pods": 10, **amounts})


def app(name: str, on: str, cpu: str = "0", memory: str = "0") -> PodBuilder:
    """A pod with an owner of its own."""
    builder = web(name, on, owner=name)
    if cpu != "0":
        builder.cpu(cpu)
    return builder.memory(memory) if memory != "0" else builder


def filled(node_name: str, number: int, cpu: str = "1", prefix: str = "p") -> list[PodBuilder]:
    return [app(f"{prefix}{index}", node_name, cpu) for index in range(number)]


@pytest.mark.parametrize(
    ("strategies", "things", "expected"),
    [
        pytest.param(
            CPU,
            [big("n1"), big("n2"), *filled("n1", 7)],
            [("p0", "n1", "n2"), ("p1", "n1", "n2")],
            id="moves stop when no resource is above its target",
        ),
        pytest.param(CPU, [big("n1"), big("n2"), *filled("n1", 5)], [], id="exactly at the target is not above it"),
        pytest.param(
            CPU,
            [big("n1"), big("n2"), *filled("n1", 7), *filled("n2", 2, prefix="q")],
            [("p0", "n1", "n2"), ("p1", "n1", "n2")],
            id="exactly at the threshold is underutilized, as it has always been",
        ),
        pytest.param(
            CPU, [big("n1"), big("n2"), *filled("n1", 1), *filled("n2", 1, prefix="q")], [], id="all underutilized"
        ),
        pytest.param(
            CPU,
            [big("n1"), big("n2"), *filled("n1", 9), *filled("n2", 9, prefix="q")],
            [],
            id="all overutilized",
        ),
        pytest.param(
            CPU,
            [big("n1"), big("n2"), big("n3"), *filled("n1", 6), *filled("n2", 8, prefix="q")],
            [("q0", "n2", "n3"), ("q1", "n2", "n3"), ("q2", "n2", "n3"), ("p0", "n1", "n3")],
            id="the fullest node first",
        ),
        pytest.param(
            CPU,
            [big("n1"), big("n2"), big("n3"), *filled("n1", 8)],
            [("p0", "n1", "n2"), ("p1", "n1", "n3"), ("p2", "n1", "n2")],
            id="each target is the node with the most free capacity",
        ),
        pytest.param(
            # upstream pools the room of n2 and n3, and evicts the large pod every cycle
            CPU,
            [big("n1"), big("n2", cpu="4"), big("n3", cpu="4"), app("large", "n1", "4"), app("more", "n1", "3")],
            [],
            id="a pod that fits on no single node is not moved",
        ),
        pytest.param(
            # upstream evicts the pods without cpu requests first, which relieves nothing
            CPU,
            [big("n1"), big("n2"), app("idle", "n1"), *filled("n1", 6)],
            [("p0", "n1", "n2")],
            id="pods without requests for the exceeded resource are not moved",
        ),
        pytest.param(
            utilization({"pods": 20}, {"pods": 50}),
            [big("n1"), big("n2"), *(app(f"p{index}", "n1") for index in range(7))],
            [("p0", "n1", "n2"), ("p1", "n1", "n2")],
            id="too many pods: every pod counts",
        ),
        pytest.param(
            CPU,
            [big("n1"), big("n2"), app("s", "n1", "1"), app("m", "n1", "2"), app("l", "n1", "4")],
            [("m", "n1", "n2")],
            id="the smallest pod that removes the excess is evicted",
        ),
        pytest.param(
            CPU,
            [big("n1"), big("n2"), *(app(name, "n1", cpu) for name, cpu in zip("abcd", "1233", strict=True))],
            [("c", "n1", "n2"), ("a", "n1", "n2")],
            id="the largest pod is evicted first if no single one removes the excess",
        ),
        pytest.param(
            CPU,
            [
                big("n1"),
                big("n2"),
                app("vip", "n1", "6").priority(100),
                app("low", "n1", "1"),
                app("mid", "n1", "1").priority(5),
            ],
            [("low", "n1", "n2"), ("mid", "n1", "n2")],
            id="priority precedes size, and pods that do not fit are not moved",
        ),
        pytest.param(
            CPU,
            [
                big("n1"),
                big("n2"),
                app("guaranteed", "n1").cpu("2", "2").memory("1Gi", "1Gi"),
                app("burstable", "n1", "4"),
            ],
            [("burstable", "n1", "n2")],
            id="Burstable before Guaranteed",
        ),
        pytest.param(
            CPU,
            [big("n1"), big("n2").cordoned(), big("n3"), *filled("n1", 6)],
            [("p0", "n1", "n3")],
            id="a cordoned node is not a target",
        ),
        pytest.param(
            CPU,
            [big("n1").cordoned(), big("n2"), *filled("n1", 6)],
            [("p0", "n1", "n2")],
            id="a cordoned node is relieved",
        ),
        pytest.param(
            CPU,
            [big("n1"), big("n2").taint("a").taint("b"), *(pod.tolerates() for pod in filled("n1", 6))],
            [("p0", "n1", "n2")],
            id="one toleration of everything tolerates two taints",
        ),
        pytest.param(
            CPU,
            [big("n1"), big("n2").taint("a", effect="PreferNoSchedule"), *filled("n1", 6)],
            [("p0", "n1", "n2")],
            id="PreferNoSchedule does not keep pods away",
        ),
        pytest.param(
            utilization({"cpu": 20}, {"cpu": 50, "memory": 50}),
            [big("n1"), big("n2"), *filled("n1", 6), app("other", "n2", memory="6Gi")],
            [],
            id="a node above another target is no destination, though below all thresholds",
        ),
        pytest.param(
            utilization({"cpu": 20}, {"memory": 50}),
            [big("n1"), big("n2"), app("a", "n1", memory="3Gi"), app("b", "n1", memory="4Gi")],
            [("a", "n1", "n2")],
            id="thresholds and targets may name different resources",
        ),
        pytest.param(
            utilization({"example.com/gpu": 20}, {"example.com/gpu": 50}),
            [
                big("n1").allocatable({"example.com/gpu": 4}),
                big("n2").allocatable({"example.com/gpu": 4}),
                big("n3"),
                *(app(name, "n1").requests({"example.com/gpu": "1"}) for name in "abc"),
            ],
            [("a", "n1", "n2")],
            id="any resource",
        ),
        pytest.param(
            utilization({"cpu": 20, "example.com/unknown": 20}, {"cpu": 50, "example.com/unknown": 50}),
            [big("n1"), big("n2"), *filled("n1", 6)],
            [("p0", "n1", "n2")],
            id="a resource that no node has is ignored",
        ),
        pytest.param(
            ALL,
            [
                big("n1", memory="100Gi"),
                big("n2"),
                big("n3"),
                *(app(f"m{i}", "n1", memory="9Gi") for i in range(6)),
                *filled("n2", 9),
            ],
            [("p0", "n2", "n3"), ("p1", "n2", "n3"), ("p2", "n2", "n3"), ("p3", "n2", "n3")],
            id="nodes are sorted by percentage; pods that do not fit on n3 are not moved",
        ),
    ],
)
def test_pods_move_from_overutilized_to_underutilized_nodes(strategies, things, expected):
    assert moves(plan(things, strategies)) == expected


def test_number_of_nodes_disables_strategy(golden: Golden):
    """The documentation says above numberOfNodes."""
    objects = [big("n1"), big("n2"), big("n3"), *filled("n1", 6)]
    assert moves(plan(objects, utilization({"cpu": 20}, {"cpu": 50}, 1))) == [("p0", "n1", "n2")]
    result = plan(objects, utilization({"cpu": 20}, {"cpu": 50}, 2))
    assert (moves(result), kept(result)) == ([], {"n1": "NotEnoughNodes"})
    golden(messages(result)["n1"])


def test_overutilized_nodes_are_reported_without_targets():
    objects = [big("n1"), big("n2"), *filled("n1", 9), *filled("n2", 4, prefix="q")]
    result = plan(objects, CPU)
    assert [(each.kind, each.name, each.reason) for each in result.kept] == [("Node", "n1", "NoUnderutilizedNodes")]
    text = "cpu utilization 90% is above the target of 50%, but no schedulable node is at or below every threshold"
    assert messages(result)["n1"] == text


def test_message_has_compared_values(golden: Golden):
    action = plan([big("n1"), big("n2"), *filled("n1", 6), *filled("n2", 1, prefix="q")], CPU).actions[0]
    assert action.reason == "NodeOverutilized"
    golden(action.message)


def test_kept_pods_have_a_reason(golden: Golden):
    objects = [
        big("n1"),
        big("n2"),
        big("n3").labels(disk="ssd"),
        app("idle", "n1"),
        app("local", "n1", "1").volume("emptyDir"),
        app("bound", "n1", "1").node_selector(disk="hdd"),
        app("huge", "n1", "6"),
    ]
    result = plan(objects, CPU)
    assert moves(result) == []
    assert kept(result) == {
        "idle": "IrrelevantResource",
        "local": "LocalStorage",
        "bound": "NoPlace",
        "huge": "NoImprovement",
    }
    text = messages(result)
    golden(text["idle"])
    golden(text["bound"], "2")
    golden(text["huge"], "3")


def test_protected_pods_are_reported_in_victim_order():
    objects = [big("n1"), big("n2"), app("daemon", "n1", "1"), *filled("n1", 6)]
    objects[2].merge(metadata={"ownerReferences": []})
    objects[2].owned_by("DaemonSet", "agent")
    result = plan(objects, CPU)
    assert moves(result) == [("p0", "n1", "n2"), ("p1", "n1", "n2")]
    assert kept(result) == {"daemon": "DaemonSetPod"}


def test_terminating_pods_do_not_count_on_overutilized_nodes():
    """Else what was evicted and takes its time to go would cost others their place in the next cycle."""
    going = [app(f"g{index}", "n1", "1").deleted() for index in range(3)]
    assert moves(plan([big("n1"), big("n2"), *filled("n1", 5), *going], CPU)) == []
    assert moves(plan([big("n1"), big("n2"), *filled("n1", 6), *going], CPU)) == [("p0", "n1", "n2")]
    result = plan([big("n1"), big("n2"), *filled("n1", 8), *going], CPU, limits={"perCycle": 1})
    assert kept(result) == {"p1": "LimitReached", "p2": "LimitReached"}


def test_terminating_pods_still_use_target_capacity():
    objects = [big("n1"), big("n2"), *filled("n1", 7), app("going", "n2", "3").deleted()]
    assert kept(plan(objects, CPU)) == {"n1": "NoUnderutilizedNodes"}


def test_pdb_is_consumed_while_planning():
    """Upstream's dry run lists evictions that the budget forbids."""
    objects = [big("n1"), big("n2"), *filled("n1", 8), budget().selecting().allowing(2)]
    result = plan(objects, CPU)
    assert moves(result) == [("p0", "n1", "n2"), ("p1", "n1", "n2")]
    assert kept(result) == {f"p{index}": "DisruptionBudget" for index in range(2, 8)}


def test_limit_reports_only_pods_it_keeps():
    """Three pods would relieve the node; the limit lets one go, so two are cut, and the others are no candidates."""
    result = plan([big("n1"), big("n2"), *filled("n1", 8)], CPU, limits={"perCycle": 1})
    assert moves(result) == [("p0", "n1", "n2")]
    assert kept(result) == {"p1": "LimitReached", "p2": "LimitReached"}


def test_host_ports_and_anti_affinity_are_respected():
    objects = [big("n1"), big("n2"), big("n3"), *filled("n1", 4)]
    objects += [app("port", "n1", "2").priority(-1).host_port(80), app("holder", "n2").host_port(80)]
    assert moves(plan(objects, CPU)) == [("port", "n1", "n3")]
    objects = [big("n1"), big("n2"), big("n3"), *filled("n1", 4)]
    lonely = app("lonely", "n1", "2").priority(-1)
    lonely.anti_affinity(HOSTNAME, labelSelector=selector(app="holder"))
    objects += [lonely, app("holder", "n2")]
    assert moves(plan(objects, CPU)) == [("lonely", "n1", "n3")]


def test_pod_with_resource_claims_is_kept(golden: Golden):
    claiming = app("claiming", "n1", "2").priority(-1)
    claiming.merge(spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]})
    result = plan([big("n1"), big("n2"), *filled("n1", 4), claiming], CPU)
    assert (moves(result), kept(result)) == ([("p0", "n1", "n2")], {"claiming": "NoPlace"})
    golden(messages(result)["claiming"])


def test_balancing_creates_no_duplicates(golden: Golden):
    """Else RemoveDuplicates would bring the pod back in the next cycle, and this strategy away again, for ever."""
    objects = [big("n1"), big("n2"), web("twin-1", "n1").cpu("2"), web("twin-2", "n2").cpu("1"), *filled("n1", 4)]
    assert moves(plan(objects, CPU)) == [("p0", "n1", "n2")]
    objects = [big("n1"), big("n2"), web("twin-1", "n1").cpu("6"), web("twin-2", "n2").cpu("1")]
    objects[1].allocatable(cpu="20")
    assert moves(plan(objects, CPU)) == [("twin-1", "n1", "n2")]
    result = plan(objects, {**CPU, DUPLICATES: {}})
    assert (moves(result), kept(result)) == ([], {"twin-1": "NoImprovement"})
    golden(messages(result)["twin-1"])


def test_balancing_respects_enforced_preferences():
    picky = app("picky", "n1", "6").prefers_nodes(10, {"key": "disk", "operator": "In", "values": ["ssd"]})
    objects = [big("n1").labels(disk="ssd"), big("n2", cpu="20"), picky]
    assert moves(plan(objects, CPU)) == [("picky", "n1", "n2")]
    assert kept(plan(objects, {**CPU, **node_affinity(PREFERRED)})) == {"picky": "NoImprovement"}


TENS = deviation({"cpu": 10}, {"cpu": 10})
GPU = "example.com/gpu"


@pytest.mark.parametrize(
    ("strategies", "things", "expected"),
    [
        pytest.param(
            # 80, 40 and 0: the mean is 40, so 30 and 50 are the marks
            TENS,
            [big("n1"), big("n2"), big("n3"), *filled("n1", 8), *filled("n2", 4, prefix="q")],
            [("p0", "n1", "n3"), ("p1", "n1", "n3"), ("p2", "n1", "n3")],
            id="thresholds are deviations from the mean",
        ),
        pytest.param(
            # 60, 40 and 50: 40 and 60 are the marks
            TENS,
            [
                big("n1"),
                big("n2"),
                big("n3"),
                *filled("n1", 6),
                *filled("n2", 4, prefix="q"),
                *filled("n3", 5, prefix="r"),
            ],
            [],
            id="exactly at the upper mark is not above it",
        ),
        pytest.param(
            # 70, 20 and 0: 20 and 40 are the marks
            TENS,
            [big("n1"), big("n2"), big("n3"), *filled("n1", 7), *filled("n2", 2, prefix="q")],
            [("p0", "n1", "n3"), ("p1", "n1", "n3"), ("p2", "n1", "n2")],
            id="exactly at the lower mark is underutilized",
        ),
        pytest.param(
            # 110 and 0: the marks would be -5 and 145
            deviation({"cpu": 60}, {"cpu": 90}),
            [big("n1"), big("n2"), *filled("n1", 9), app("more", "n1", "2")],
            [("p0", "n1", "n2")],
            id="a mark beyond 100 is 100, one below 0 is 0",
        ),
        pytest.param(
            # 70 of 10 and 0 of 90: their mean is 35 whatever their size, so 25 and 45 are the marks
            TENS,
            [big("n1"), big("n2", cpu="90"), *filled("n1", 7)],
            [("p0", "n1", "n2"), ("p1", "n1", "n2"), ("p2", "n1", "n2")],
            id="every node counts the same",
        ),
        pytest.param(
            # of a and b: 40 and 0, so 10 and 30; n3 would bring the mean to 43
            TENS,
            [
                *(big(name).labels(pool="a") for name in ("n1", "n2")),
                big("n3"),
                *filled("n1", 4),
                *filled("n3", 9, prefix="q"),
            ],
            [("p0", "n1", "n2")],
            id="only the policy's nodes make the mean",
        ),
        pytest.param(
            TENS,
            [big("n1"), big("n2"), big("n3").not_ready(), *filled("n1", 4), *filled("n3", 9, prefix="q")],
            [("q0", "n3", "n2"), ("q1", "n3", "n2"), ("q2", "n3", "n2")],
            id="of these those that can start pods",
        ),
        pytest.param(
            # of the two nodes with GPUs: 100 and 0, so 40 and 60
            deviation({GPU: 10}, {GPU: 10}),
            [
                *(big(name, **{GPU: 4}) for name in ("n1", "n2")),
                *(big(f"m{number}") for number in range(8)),
                *(app(f"p{index}", "n1").requests({GPU: "1"}) for index in range(4)),
            ],
            [("p0", "n1", "n2"), ("p1", "n1", "n2")],
            id="only nodes that have a resource make its mean",
        ),
        pytest.param(
            utilization({GPU: 25}, {GPU: 50}),
            [
                *(big(name, **{GPU: 4}) for name in ("n1", "n2")),
                big("n3"),
                *(app(f"p{index}", "n1", "1").requests({GPU: "1"}) for index in range(3)),
                app("idle", "n1", "1"),
            ],
            [("p0", "n1", "n2")],
            id="any resource that nodes have may be named",
        ),
    ],
)
def test_deviation_thresholds_are_relative_to_mean(strategies, things, expected):
    spec = (
        {"nodeSelector": {"matchLabels": {"pool": "a"}}}
        if any("pool" in str(each.manifest()) for each in things)
        else {}
    )
    assert moves(plan(things, strategies, **spec)) == expected


def test_excluded_namespaces_are_kept_and_counted(golden: Golden):
    objects = [big("n1"), big("n2"), *filled("n1", 4)]
    objects += [web(f"b{index}", "n1", owner=f"b{index}", namespace="blog").cpu("1") for index in range(3)]
    result = plan(objects, with_params(CPU, evictableNamespaces={"exclude": ["blog"]}))
    assert moves(result) == [("p0", "n1", "n2"), ("p1", "n1", "n2")]
    assert kept(result) == dict.fromkeys(("b0", "b1", "b2"), "NamespaceNotEvictable")
    golden(messages(result)["b0"])


def test_eviction_limits_node_applies_per_node(golden: Golden):
    objects = [big("n1"), big("n2"), big("n3"), big("n4"), *filled("n1", 7), *filled("n2", 8, prefix="q")]
    result = plan(objects, with_params(CPU, evictionLimits={"node": 1}))
    assert moves(result) == [("q0", "n2", "n3"), ("p0", "n1", "n4")]
    assert kept(result) == dict.fromkeys(("q1", "q2", "p1"), "LimitReached")
    golden(messages(result)["p1"])


def test_protected_pods_are_not_reported_as_limited():
    objects = [
        big("n1"),
        big("n2"),
        app("p0", "n1", "1"),
        app("p1", "n1", "1").volume("emptyDir"),
        *filled("n1", 5, prefix="q"),
    ]
    result = plan(objects, with_params(CPU, evictionLimits={"node": 1}))
    assert moves(result) == [("p0", "n1", "n2")]
    assert kept(result) == {"p1": "LocalStorage", "q0": "LimitReached"}


def with_params(strategies: dict[str, Any], **params: Any) -> dict[str, Any]:
    """LowNodeUtilization with further parameters."""
    return {name: {"params": {**value["params"], **params}} for name, value in strategies.items()}


def test_rounding_error_is_no_overutilization():
    """As a share it is; as an amount it is not, so that nothing could be said of it: the plan ended in an error."""
    done = plan(
        [node("n1").allocatable(cpu="7910m"), web("a", "n1").cpu("1988m")],
        utilization({"cpu": 0}, {"cpu": 25.132743362831857}),
    )

    assert (done.actions, done.kept) == ((), ())


def test_replacements_of_resized_pods_fill_their_destination():
    """Nine pods of 1 cpu; two replacements of 2 cpu, or four of 1, bring n2 from 10 % to its target of 50 %."""
    owner = replica_set("web").of_pods(pod().cpu("2"))
    pods = [web(f"p{index}", "n1").cpu("1").merge(metadata={"generation": 2}) for index in range(9)]
    objects = [big("n1"), big("n2"), app("base", "n2", "1"), *pods]
    assert len(moves(plan([*objects, owner], CPU))) == 2
    assert len(moves(plan(objects, CPU))) == 4
