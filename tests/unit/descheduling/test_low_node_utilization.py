"""LowNodeUtilization: which nodes give pods, which pods, and who gets them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import HOSTNAME, NodeBuilder, PodBuilder, budget, node, selector
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
            id="moves end as soon as nothing is above its target",
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
            id="each pod goes where most room is left",
        ),
        pytest.param(
            # upstream pools the room of n2 and n3, and evicts the large pod every cycle
            CPU,
            [big("n1"), big("n2", cpu="4"), big("n3", cpu="4"), app("large", "n1", "4"), app("more", "n1", "3")],
            [],
            id="room is not pooled: what fits on no single node stays",
        ),
        pytest.param(
            # upstream evicts the pods without cpu requests first, which relieves nothing
            CPU,
            [big("n1"), big("n2"), app("idle", "n1"), *filled("n1", 6)],
            [("p0", "n1", "n2")],
            id="pods that request nothing of what is too much stay",
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
            id="the smallest pod that ends the excess goes",
        ),
        pytest.param(
            CPU,
            [big("n1"), big("n2"), *(app(name, "n1", cpu) for name, cpu in zip("abcd", "1233", strict=True))],
            [("c", "n1", "n2"), ("a", "n1", "n2")],
            id="if no single pod ends it the largest goes first",
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
            id="priority comes before size, and what would overfill the other node stays",
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
            id="a cordoned node gets nothing",
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
            id="a resource that nobody has plays no part",
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
            id="the order of nodes is by percent, not by bytes; what overfills n3 stays",
        ),
    ],
)
def test_pods_move_from_overutilized_to_underutilized_nodes(strategies, things, expected):
    assert moves(plan(things, strategies)) == expected


def test_nothing_happens_while_few_nodes_are_underutilized():
    """The documentation says above numberOfNodes."""
    things = [big("n1"), big("n2"), big("n3"), *filled("n1", 6)]
    assert moves(plan(things, utilization({"cpu": 20}, {"cpu": 50}, 1))) == [("p0", "n1", "n2")]
    result = plan(things, utilization({"cpu": 20}, {"cpu": 50}, 2))
    assert (moves(result), kept(result)) == ([], {"n1": "NotEnoughNodes"})
    assert messages(result)["n1"] == (
        "cpu 60% is above its target 50%, but 2 nodes are underutilized, not more than numberOfNodes (2)"
    )


def test_without_underutilized_nodes_the_overutilized_ones_are_named():
    things = [big("n1"), big("n2"), *filled("n1", 9), *filled("n2", 4, prefix="q")]
    result = plan(things, CPU)
    assert [(each.kind, each.name, each.reason) for each in result.kept] == [("Node", "n1", "NoUnderutilizedNodes")]
    text = "cpu 90% is above its target 50%, but no schedulable node is at or below every threshold"
    assert messages(result)["n1"] == text


def test_the_message_has_the_numbers():
    action = plan([big("n1"), big("n2"), *filled("n1", 6), *filled("n2", 1, prefix="q")], CPU).actions[0]
    assert action.reason == "NodeOverutilized"
    assert action.message == "cpu 60% of n1 is above its target 50%; n2 is at 10%"


def test_pods_that_stay_are_named_with_the_reason():
    things = [
        big("n1"),
        big("n2"),
        big("n3").labels(disk="ssd"),
        app("idle", "n1"),
        app("local", "n1", "1").volume("emptyDir"),
        app("bound", "n1", "1").node_selector(disk="hdd"),
        app("huge", "n1", "6"),
    ]
    result = plan(things, CPU)
    assert moves(result) == []
    assert kept(result) == {
        "idle": "IrrelevantResource",
        "local": "LocalStorage",
        "bound": "NoPlace",
        "huge": "NoImprovement",
    }
    text = messages(result)
    assert text["idle"] == "the pod requests none of what n1 has too much of: cpu"
    assert text["bound"] == "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."
    assert text["huge"] == (
        "0/3 nodes are available: 1 node(s) already ran the pod, "
        "2 node(s) were not underutilized, or would have been above targetThresholds."
    )


def test_protected_pods_are_considered_in_order_and_named():
    things = [big("n1"), big("n2"), app("daemon", "n1", "1"), *filled("n1", 6)]
    things[2].merge(metadata={"ownerReferences": []})
    things[2].owned_by("DaemonSet", "agent")
    result = plan(things, CPU)
    assert moves(result) == [("p0", "n1", "n2"), ("p1", "n1", "n2")]
    assert kept(result) == {"daemon": "DaemonSetPod"}


def test_pods_on_their_way_out_burden_the_node_they_leave_no_more():
    """Else what was evicted and takes its time to go would cost others their place in the next cycle."""
    going = [app(f"g{index}", "n1", "1").deleted() for index in range(3)]
    assert moves(plan([big("n1"), big("n2"), *filled("n1", 5), *going], CPU)) == []
    assert moves(plan([big("n1"), big("n2"), *filled("n1", 6), *going], CPU)) == [("p0", "n1", "n2")]
    result = plan([big("n1"), big("n2"), *filled("n1", 8), *going], CPU, limits={"perCycle": 1})
    assert kept(result) == {"p1": "LimitReached", "p2": "LimitReached"}


def test_pods_on_their_way_out_still_take_their_room():
    things = [big("n1"), big("n2"), *filled("n1", 7), app("going", "n2", "3").deleted()]
    assert kept(plan(things, CPU)) == {"n1": "NoUnderutilizedNodes"}


def test_a_budget_is_consumed_while_planning():
    """Upstream's dry run lists evictions that the budget forbids."""
    things = [big("n1"), big("n2"), *filled("n1", 8), budget().selecting().allowing(2)]
    result = plan(things, CPU)
    assert moves(result) == [("p0", "n1", "n2"), ("p1", "n1", "n2")]
    assert kept(result) == {f"p{index}": "DisruptionBudget" for index in range(2, 8)}


def test_what_a_limit_cuts_is_named_and_no_more():
    """Three pods would relieve the node; the limit lets one go, so two are cut, and the others are no candidates."""
    result = plan([big("n1"), big("n2"), *filled("n1", 8)], CPU, limits={"perCycle": 1})
    assert moves(result) == [("p0", "n1", "n2")]
    assert kept(result) == {"p1": "LimitReached", "p2": "LimitReached"}


def test_pods_with_host_ports_and_anti_affinity_get_a_place_that_suits_them():
    things = [big("n1"), big("n2"), big("n3"), *filled("n1", 4)]
    things += [app("port", "n1", "2").priority(-1).host_port(80), app("holder", "n2").host_port(80)]
    assert moves(plan(things, CPU)) == [("port", "n1", "n3")]
    things = [big("n1"), big("n2"), big("n3"), *filled("n1", 4)]
    lonely = app("lonely", "n1", "2").priority(-1)
    lonely.anti_affinity(HOSTNAME, labelSelector=selector(app="holder"))
    things += [lonely, app("holder", "n2")]
    assert moves(plan(things, CPU)) == [("lonely", "n1", "n3")]


def test_a_pod_with_resource_claims_stays_for_nobody_knows_where_it_can_run():
    claiming = app("claiming", "n1", "2").priority(-1)
    claiming.merge(spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]})
    result = plan([big("n1"), big("n2"), *filled("n1", 4), claiming], CPU)
    assert (moves(result), kept(result)) == ([("p0", "n1", "n2")], {"claiming": "NoPlace"})
    assert "does not judge ResourceClaims" in messages(result)["claiming"]


def test_balance_makes_no_new_duplicates():
    """Else RemoveDuplicates would bring the pod back in the next cycle, and this strategy away again, for ever."""
    things = [big("n1"), big("n2"), web("twin-1", "n1").cpu("2"), web("twin-2", "n2").cpu("1"), *filled("n1", 4)]
    assert moves(plan(things, CPU)) == [("p0", "n1", "n2")]
    things = [big("n1"), big("n2"), web("twin-1", "n1").cpu("6"), web("twin-2", "n2").cpu("1")]
    things[1].allocatable(cpu="20")
    assert moves(plan(things, CPU)) == [("twin-1", "n1", "n2")]
    result = plan(things, {**CPU, DUPLICATES: {}})
    assert (moves(result), kept(result)) == ([], {"twin-1": "NoImprovement"})
    assert "1 node(s) had their fair share of the owner's pods" in messages(result)["twin-1"]


def test_balance_respects_preferences_that_are_looked_at():
    picky = app("picky", "n1", "6").prefers_nodes(10, {"key": "disk", "operator": "In", "values": ["ssd"]})
    things = [big("n1").labels(disk="ssd"), big("n2", cpu="20"), picky]
    assert moves(plan(things, CPU)) == [("picky", "n1", "n2")]
    assert kept(plan(things, {**CPU, **node_affinity(PREFERRED)})) == {"picky": "NoImprovement"}


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
            id="the marks lie around the mean",
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
def test_marks_are_counted_from_the_mean_and_of_any_resource(strategies, things, expected):
    spec = (
        {"nodeSelector": {"matchLabels": {"pool": "a"}}}
        if any("pool" in str(each.manifest()) for each in things)
        else {}
    )
    assert moves(plan(things, strategies, **spec)) == expected


def test_pods_of_namespaces_that_are_not_evictable_stay_and_count():
    things = [big("n1"), big("n2"), *filled("n1", 4)]
    things += [web(f"b{index}", "n1", owner=f"b{index}", namespace="blog").cpu("1") for index in range(3)]
    result = plan(things, with_params(CPU, evictableNamespaces={"exclude": ["blog"]}))
    assert moves(result) == [("p0", "n1", "n2"), ("p1", "n1", "n2")]
    assert kept(result) == dict.fromkeys(("b0", "b1", "b2"), "NamespaceNotEvictable")
    assert messages(result)["b0"] == "evictableNamespaces.exclude names blog"


def test_the_strategys_own_limit_holds_for_each_node():
    things = [big("n1"), big("n2"), big("n3"), big("n4"), *filled("n1", 7), *filled("n2", 8, prefix="q")]
    result = plan(things, with_params(CPU, evictionLimits={"node": 1}))
    assert moves(result) == [("q0", "n2", "n3"), ("p0", "n1", "n4")]
    assert kept(result) == dict.fromkeys(("q1", "q2", "p1"), "LimitReached")
    assert messages(result)["p1"] == "evictionLimits.node is 1, and 1 eviction is planned for node n1"


def test_what_is_protected_is_not_told_of_the_strategys_limit():
    things = [
        big("n1"),
        big("n2"),
        app("p0", "n1", "1"),
        app("p1", "n1", "1").volume("emptyDir"),
        *filled("n1", 5, prefix="q"),
    ]
    result = plan(things, with_params(CPU, evictionLimits={"node": 1}))
    assert moves(result) == [("p0", "n1", "n2")]
    assert kept(result) == {"p1": "LocalStorage", "q0": "LimitReached"}


def with_params(strategies: dict[str, Any], **params: Any) -> dict[str, Any]:
    """LowNodeUtilization with further parameters."""
    return {name: {"params": {**value["params"], **params}} for name, value in strategies.items()}


def test_a_node_that_is_above_its_target_by_rounding_only_is_not_overutilized():
    """As a share it is; as an amount it is not, so that nothing could be said of it: the plan ended in an error."""
    done = plan(
        [node("n1").allocatable(cpu="7910m"), web("a", "n1").cpu("1988m")],
        utilization({"cpu": 0}, {"cpu": 25.132743362831857}),
    )

    assert (done.actions, done.kept) == ((), ())
