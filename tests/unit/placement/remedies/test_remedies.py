"""Each remedy on the smallest cluster on which it is the cheapest: what is said, and of which object."""

from __future__ import annotations

from itertools import islice

import pytest
from msgspec.structs import replace

from tests.builders import HOSTNAME, ZONE, expression, node, pod
from tests.fixtures.golden import Golden
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import (
    CSINode,
    LabelRequirement,
    NodeDriver,
    NodeSelector,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
)
from trimtab.placement.placer import Placer
from trimtab.placement.registry import DEFAULT
from trimtab.placement.remedies.search import REFUSAL_REMEDIES, REMEDIES, RemedyPlan, find_remedy_plans


def ways(*things, most: int = 9) -> list[RemedyPlan]:
    """What would help the pod ``p``, the cheapest first."""
    snapshot = Snapshot([item.build() if hasattr(item, "build") else item for item in things])
    placer = Placer(snapshot)
    with snapshot.fork():
        lifted = placer.unbind(snapshot.pods["shop/p"])
        assert not placer.feasible(lifted).any()
        return list(islice(find_remedy_plans(placer, lifted), most))


def cheapest_plan(*things) -> RemedyPlan | None:
    return next(iter(ways(*things, most=1)), None)


def p(name: str = "p"):
    return pod(name)


def full(host: str = "n1", cpu: str = "4", name: str = "full"):
    return pod(name).on(host).cpu(cpu)


def together(name: str, host: str):
    return pod(name).labels(app="web").anti_affinity().on(host)


def daemon(name: str, host: str = "n1"):
    named = expression("metadata.name", "In", host)
    return pod(name).owned_by("DaemonSet", "agent").node_affinity(fields=(named,))


def small_claim(**fields) -> PersistentVolumeClaim:
    return PersistentVolumeClaim("shop", "data", storage_class="late", **fields)


CASES = {
    "a cordon, with its taint": (
        [node("n1").cordoned(), p()],
        ["Uncordon"],
        "uncordon node n1",
    ),
    "a cordon, on the node that is nearest": (
        [node("n1").taint("gpu").cordoned(), node("n2").cordoned(), p()],
        ["Uncordon"],
        "uncordon node n2",
    ),
    "a cordon and a taint": (
        [node("n1").taint("gpu", "yes").cordoned(), p()],
        ["Uncordon", "TolerateTaint"],
        "uncordon node n1; let pod shop/p tolerate gpu=yes:NoSchedule of node n1",
    ),
    "a taint": (
        [node("n1").taint("gpu", effect="NoExecute"), p()],
        ["TolerateTaint"],
        "let pod shop/p tolerate gpu:NoExecute of node n1",
    ),
    "a taint, told of the owner's template": (
        [node("n1").taint("gpu"), p().owned_by("ReplicaSet", "web")],
        ["TolerateTaint"],
        "let pod shop/p (template of ReplicaSet web) tolerate gpu:NoSchedule of node n1",
    ),
    "the fewer taints": (
        [node("n1").taint("a").taint("b"), node("n2").taint("c"), p()],
        ["TolerateTaint"],
        "let pod shop/p tolerate c:NoSchedule of node n2",
    ),
    "an ill node": (
        [node("n1").not_ready().taint("node.kubernetes.io/not-ready"), p()],
        ["RecoverNode"],
        "repair node n1, so that Kubernetes removes node.kubernetes.io/not-ready:NoSchedule from it",
    ),
    "a missing label": (
        [node("n1"), p().node_selector(disk="ssd")],
        ["LabelNode"],
        "label node n1: disk=ssd",
    ),
    "a selector, rather than another value on the node": (
        [node("n1").labels(disk="hdd"), p().node_selector(disk="ssd")],
        ["ChangeSelector"],
        "let pod shop/p not require disk=ssd, but disk=hdd",
    ),
    "a zone that is not there": (
        [node("n1").zone("a"), p().node_selector({"topology.kubernetes.io/zone": "b"})],
        ["ChangeSelector"],
        "let pod shop/p not require topology.kubernetes.io/zone=b, but topology.kubernetes.io/zone=a",
    ),
    "a missing label of the nearest of several terms": (
        [
            node("n1").labels(disk="ssd"),
            p()
            .node_affinity(expression("disk", "In", "nvme"), expression("rack", "Exists"))
            .node_affinity(expression("gen", "Gt", "4"), expression("disk", "In", "ssd")),
        ],
        ["LabelNode"],
        "label node n1: gen=5",
    ),
    "a requirement that the node must not have": (
        [node("n1").labels(spot="yes"), p().node_affinity(expression("spot", "DoesNotExist"))],
        ["ChangeSelector"],
        "let pod shop/p not require spot DoesNotExist",
    ),
    "a little too much requested, and no larger node": (
        [node("n1"), p().cpu("4100m")],
        ["LowerRequests"],
        "lower the requests of pod shop/p: cpu from 4100m to 4; node n1 lacks cpu 100m",
    ),
    "on the node where the least is missing": (
        [node("n1").allocatable(cpu="3900m"), node("n2"), p().cpu("4100m")],
        ["LowerRequests"],
        "lower the requests of pod shop/p: cpu from 4100m to 4; node n2 lacks cpu 100m",
    ),
    "a pod that can move": (
        [node("n1"), node("n2").allocatable(cpu="600m"), full(cpu="500m"), full(cpu="3", name="big"), p().cpu("1")],
        ["FreeRoom"],
        "evict shop/full (to n2) from node n1: cpu 500m is missing",
    ),
    "pods that leave anyway": (
        [node("n1"), full().deleted(), p().cpu("1")],
        ["WaitForPods"],
        "wait until shop/full has terminated on node n1",
    ),
    "a further node, rather than evicting what fits nowhere": (
        [node("n1"), full(), p().cpu("1")],
        ["AddNode"],
        "add a node like n1 (cpu 4, memory 16Gi)",
    ),
    "the smallest further node": (
        [
            node("big").allocatable(cpu="8"),
            node("small"),
            node("tiny").allocatable(cpu="1"),
            full("big", "8", "a"),
            full("small", "4", "b"),
            p().cpu("3"),
        ],
        ["AddNode"],
        "add a node like small (cpu 4, memory 16Gi)",
    ),
    "larger than every node": (
        [node("n1"), node("n2").allocatable(cpu="8"), p().cpu("64")],
        ["LargerNode"],
        "add a node with at least cpu 64: the closest one, n2, has only cpu 8 even if empty, cpu 56 too little",
    ),
    "a resource that no node has": (
        [node("n1"), p().requests({"x/gpu": "1"})],
        ["LargerNode"],
        "add a node with at least x/gpu 1: the closest one, n1, has only x/gpu 0 even if empty, x/gpu 1 too little",
    ),
    "a host port that is taken": (
        [node("n1"), pod("web").host_port(80).on("n1"), pod("other").host_port(81).on("n1"), p().host_port(80)],
        ["ChangeHostPort"],
        "give pod shop/p host port 82 instead of 80/TCP, which is in use on node n1",
    ),
    "its own anti-affinity": (
        [node("n1"), pod("web").labels(app="web").on("n1"), p().labels(app="web").anti_affinity()],
        ["RelaxAffinity"],
        "let pod shop/p prefer, not require, its podAntiAffinity by kubernetes.io/hostname: it fits on node n1 then",
    ),
    "a neighbour it must follow": (
        [node("n1"), p().affinity(labelSelector={"matchLabels": {"app": "db"}})],
        ["RelaxAffinity"],
        "let pod shop/p prefer, not require, its podAffinity by kubernetes.io/hostname: it fits on node n1 then",
    ),
    "anti-affinity of others, one of whom can move": (
        [node("n1"), node("n2"), together("web", "n1"), daemon("p").labels(app="web")],
        ["EvictNeighbours"],
        "evict shop/web (to n2) from node n1: required anti-affinity separates them from the pod",
    ),
    "two zones, one of them full": (
        [
            node("n1").zone("a"),
            node("n2").zone("b").allocatable(cpu="1"),
            full("n2", "1"),
            *(pod(f"web-{number}").labels(app="web").on("n1") for number in range(3)),
            p().labels(app="web").spread().cpu("1"),
        ],
        ["RaiseMaxSkew"],
        "raise the maxSkew of pod shop/p: topology.kubernetes.io/zone from 1 to 4; it fits on node n1 then",
    ),
    "a spread over a label that no node has": (
        [node("n1"), p().labels(app="web").spread("rack")],
        ["RelaxSpread"],
        "let pod shop/p prefer, not require, its spread by rack: it fits on node n1 then",
    ),
    "scheduling gates": (
        [node("n1"), p().merge(spec={"schedulingGates": [{"name": "a"}, {"name": "b"}]})],
        ["RemoveSchedulingGates"],
        "remove scheduling gates a, b from pod shop/p",
    ),
    "scheduling gates before a cordon": (
        [node("n1").cordoned(), p().merge(spec={"schedulingGates": [{"name": "a"}]})],
        ["RemoveSchedulingGates", "Uncordon"],
        "remove scheduling gate a from pod shop/p; uncordon node n1",
    ),
    "a claim that is missing": (
        [node("n1"), p().volume("persistentVolumeClaim", claimName="data")],
        ["BindClaim"],
        "create claim shop/data, with a volume that the node can use",
    ),
    "a claim that is not bound": (
        [node("n1"), p().volume("persistentVolumeClaim", claimName="data"), small_claim(request=1)],
        ["BindClaim"],
        "bind claim shop/data, with a volume that the node can use",
    ),
    "claims that trimtab does not judge": (
        [node("n1"), p().merge(spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "x"}]})],
        None,
        None,
    ),
}


@pytest.mark.parametrize(("things", "reasons", "change"), CASES.values(), ids=CASES)
def test_cheapest_change(things, reasons, change):
    found = cheapest_plan(*things)
    if reasons is None:
        assert found is None
        return
    assert found is not None
    assert [step.reason for step in found.steps] == reasons
    assert found.document()["change"] == change


def test_every_filter_has_a_remedy_or_is_listed_as_having_none():
    """Whoever adds a filter adds a remedy."""
    helped = {rule for remedy in (*REMEDIES, *REFUSAL_REMEDIES) for rule in remedy.rules}
    # A pod that names its node is never asked about, claims are not read, a kubelet's features come with its version.
    # Who simplifies a pod that is too complex has to know what of it is needed.
    beyond = {"NodeName", "DynamicResources", "Complexity", "NamespaceComplexity"}

    assert {rule.name for rule in DEFAULT.filters} - helped == beyond


def test_alternatives_avoid_previous_remedies(golden: Golden):
    found = ways(node("n1").taint("gpu"), node("n2"), full("n2", "3500m"), p().cpu("1"))

    assert [way.reason for way in found[:4]] == ["TolerateTaint", "RemoveTaint", "AddNode", "LowerRequests"]
    assert [way.cost for way in found] == sorted(way.cost for way in found)
    golden(found[1].document()["change"])


def test_step_names_object_and_field(golden: Golden):
    [first, second] = ways(node("n1").taint("gpu", "yes"), p())[:2]

    [step] = first.document()["steps"]
    golden(step.pop("change"))
    assert [step] == [
        {
            "reason": "TolerateTaint",
            "kind": "Pod",
            "name": "shop/p",
            "field": "spec.tolerations",
            "from": [],
            "to": [{"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}],
        }
    ]
    assert second.document()["steps"][0]["from"] == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    assert second.document()["steps"][0]["to"] == []


def by_reason(reason: str, *things) -> RemedyPlan:
    return next(way for way in ways(*things) if way.reason == reason)


@pytest.mark.parametrize(
    ("there", "gone"),
    [
        pytest.param({"a": (1, 0), "b": (3, 0)}, ["b"], id="one large rather than all"),
        pytest.param({"a": (3, 5), "b": (1, 0)}, ["a"], id="who need not go stays"),
        pytest.param({"a": (2, 5), "b": (2, 0)}, ["b"], id="the lowest priority"),
        pytest.param({"a": (1, 0), "b": (1, 0), "c": (2, 9)}, ["a", "b"], id="two of low priority before a higher one"),
    ],
)
def test_few_low_priority_pods_are_evicted(there, gone):
    pods = [pod(name).on("n1").cpu(str(cpu)).priority(priority) for name, (cpu, priority) in there.items()]
    found = by_reason("FreeRoom", node("n1"), node("n2"), *pods, daemon("p").cpu("2"))
    [step] = [step for step in found.steps if step.reason == "FreeRoom"]

    assert [each["pod"] for each in step.document()["pods"]] == [f"shop/{name}" for name in gone]


def test_pods_recreated_on_the_node_are_not_evicted():
    agent = daemon("agent").on("n1").cpu("4")

    assert "FreeRoom" not in {way.reason for way in ways(node("n1"), agent, p().cpu("1"))}


def test_new_node_has_daemon_set_pods():
    """So a node of which they leave too little is no help."""
    objects = [node("n1"), node("big").allocatable(cpu="8"), full("big", "8", "z"), p().cpu("4")]

    assert by_reason("AddNode", *objects, full(cpu="1")).steps[0].details["like"] == "n1"
    assert by_reason("AddNode", *objects, daemon("agent").on("n1").cpu("1")).steps[0].details["like"] == "big"


def test_new_node_is_in_the_zone_of_the_volume(golden: Golden):
    claim = PersistentVolumeClaim("shop", "data", volume="v", bind_completed=True, phase="Bound")
    volume = PersistentVolume("v", labels=Labels({ZONE: "b"}), claim="shop/data")
    nodes = [node(f"n{number}").zone("b" if number == 9 else "a") for number in range(12)]
    requested = p().cpu("4").volume("persistentVolumeClaim", claimName="data")
    found = cheapest_plan(*nodes, full("n9", "4").node_selector({HOSTNAME: "n9"}), claim, volume, requested)

    assert found is not None
    golden(found.document()["change"])


def test_higher_priority_victims_are_mentioned(golden: Golden):
    objects = [node("n1"), full().priority(100), p().cpu("4").priority(1)]

    golden(by_reason("FreeRoom", *objects).document()["change"])


@pytest.mark.parametrize("policy", ["", "Never"])
def test_preemption_is_mentioned(policy, golden: Golden):
    requested = p().cpu("4").priority(9).merge(spec={"preemptionPolicy": policy} if policy else {})
    golden(by_reason("FreeRoom", node("n1"), full().priority(1), requested).document()["change"])


def test_user_of_a_read_write_once_pod_claim_is_evicted(golden: Golden):
    claim = PersistentVolumeClaim(
        "shop", "data", volume="v", bind_completed=True, phase="Bound", access_modes=("ReadWriteOncePod",)
    )
    user = pod("user").on("n2").volume("persistentVolumeClaim", claimName="data")
    requested = p().volume("persistentVolumeClaim", claimName="data")
    found = cheapest_plan(node("n1"), node("n2"), claim, PersistentVolume("v", claim="shop/data"), user, requested)

    assert found is not None
    golden(found.document()["change"])


def test_one_pod_is_evicted_at_the_volume_limit():
    volumes = [PersistentVolume(name, source="csi", driver="disks", handle=name) for name in "abc"]
    claims = [PersistentVolumeClaim("shop", name, volume=name, bind_completed=True, phase="Bound") for name in "abc"]
    limit = CSINode("n1", drivers=(NodeDriver("disks", 2),))
    users = [pod(name).on("n1").volume("persistentVolumeClaim", claimName=name) for name in "ab"]
    requested = p().volume("persistentVolumeClaim", claimName="c")
    found = by_reason("FreeVolumes", node("n1"), *volumes, *claims, limit, *users, requested)

    assert [each["pod"] for each in found.steps[0].details["pods"]] == ["shop/a"]


def test_kubelet_upgrade_is_suggested_for_missing_features(golden: Golden):
    requested = p().build()
    found = cheapest_plan(node("n1"), replace(requested, spec=replace(requested.spec, required_features=("A", "B"))))

    assert found is not None
    golden(found.document()["change"])


def test_no_remedy_in_an_unsuitable_cluster():
    claim = PersistentVolumeClaim("shop", "data", volume="v", bind_completed=True, phase="Bound")
    other_nodes = NodeSelector((NodeSelectorTerm((LabelRequirement(ZONE, "In", ("gone",)),)),))
    volume = PersistentVolume("v", claim="shop/data", node_affinity=other_nodes)

    assert (
        cheapest_plan(node("n1").zone("a"), claim, volume, p().volume("persistentVolumeClaim", claimName="data"))
        is None
    )


@pytest.mark.parametrize(
    ("used", "wanted", "given"),
    [
        ([8080], [8080], ["8081 instead of 8080/TCP"]),
        ([8080], [8080, 8081], ["8082 instead of 8080/TCP"]),
        ([8080, 8081], [8080, 9090], ["8082 instead of 8080/TCP"]),
        ([65534], [65534], ["65535 instead of 65534/TCP"]),
    ],
)
def test_next_free_host_port_is_suggested(used, wanted, given):
    there, candidate = pod("there").on("n1"), p()
    for port in used:
        there.host_port(port)
    for port in wanted:
        candidate.host_port(port)

    change = by_reason("ChangeHostPort", node("n1"), there, candidate).document()["change"]

    assert all(text in change for text in given)


def test_last_host_port_has_no_next_one():
    found = ways(node("n1"), pod("there").on("n1").host_port(65535), p().host_port(65535))

    assert "ChangeHostPort" not in [way.reason for way in found]
    assert found[0].reason in {"FreeHostPort", "AddNode"}


@pytest.mark.parametrize(
    ("claim", "change"),
    [
        (None, "create claim"),
        (PersistentVolumeClaim("shop", "data", phase="Lost", volume="v"), "recreate claim"),
        (PersistentVolumeClaim("shop", "data", phase="Bound", volume="v", deleted=1.0), "recreate claim"),
        (PersistentVolumeClaim("shop", "data", storage_class="none"), "bind claim"),
    ],
)
def test_claim_is_created_recreated_or_bound(claim, change):
    found = cheapest_plan(node("n1"), *([] if claim is None else [claim]), p().claim("data"))

    assert found is not None
    assert found.document()["change"].startswith(change)


def test_gates_are_removed_before_the_other_obstacles():
    gated = p().merge(spec={"schedulingGates": [{"name": "quota"}]})

    found = cheapest_plan(node("n1").taint("gpu"), gated)

    assert found is not None
    assert [step.reason for step in found.steps] == ["RemoveSchedulingGates", "TolerateTaint"]


def test_gated_pod_that_no_change_places_has_no_remedy():
    claim = PersistentVolumeClaim("shop", "data", volume="v", bind_completed=True, phase="Bound")
    other_nodes = NodeSelector((NodeSelectorTerm((LabelRequirement(ZONE, "In", ("gone",)),)),))
    volume = PersistentVolume("v", claim="shop/data", node_affinity=other_nodes)
    gated = p().claim("data").merge(spec={"schedulingGates": [{"name": "quota"}]})

    assert cheapest_plan(node("n1").zone("a"), claim, volume, gated) is None


def test_new_node_gets_an_unused_name():
    found = by_reason("AddNode", node("n1"), node("new-n1").taint("x"), full("n1"), p().cpu("2"))

    [step] = found.document()["steps"]
    assert step["name"] == "new-new-n1"


@pytest.mark.parametrize("value", ["four", "4.5"])
def test_label_is_not_suggested_for_a_comparison_with_no_integer(value):
    compared = p().node_affinity(expression("gen", "Gt", value))

    assert "LabelNode" not in [way.reason for way in ways(node("n1"), compared)]


@pytest.mark.parametrize(
    ("requirement", "change"),
    [
        (expression("gen", "Gt", "4"), "label node n1: gen=5"),
        (expression("gen", "Lt", "4"), "label node n1: gen=3"),
        (expression("gen", "Exists"), "label node n1: gen="),
        (expression("gen", "In", "7", "8"), "label node n1: gen=7"),
    ],
)
def test_label_meets_the_requirement(requirement, change):
    assert by_reason("LabelNode", node("n1"), p().node_affinity(requirement)).document()["change"] == change


def test_few_of_many_equal_nodes_are_examined(monkeypatch):
    nodes = [node(f"n{number:02}").taint("a") for number in range(20)]

    tried = {way.node for way in ways(*nodes, p(), most=99)}

    assert tried & {f"n{number:02}" for number in range(20)} <= {"n00", "n01", "n02"}
