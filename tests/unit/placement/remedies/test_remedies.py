"""Each remedy on the smallest cluster on which it is the cheapest: what is said, and of which object."""

from __future__ import annotations

from itertools import islice

import pytest
from msgspec.structs import replace

from tests.builders import HOSTNAME, ZONE, expression, node, pod
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
from trimtab.placement.remedies.registry import LIFTINGS, REMEDIES
from trimtab.placement.remedies.search import Cure, cures


def ways(*things, most: int = 9) -> list[Cure]:
    """What would help the pod ``p``, the cheapest first."""
    snapshot = Snapshot([thing.build() if hasattr(thing, "build") else thing for thing in things])
    placer = Placer(snapshot)
    with snapshot.fork():
        lifted = placer.lift(snapshot.pods["shop/p"])
        assert not placer.feasible(lifted).any()
        return list(islice(cures(placer, lifted), most))


def cure(*things) -> Cure | None:
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
        "mend node n1, until Kubernetes takes node.kubernetes.io/not-ready:NoSchedule from it",
    ),
    "a missing label": (
        [node("n1"), p().node_selector(disk="ssd")],
        ["LabelNode"],
        "label node n1: disk=ssd",
    ),
    "a selector, rather than another value on the node": (
        [node("n1").labels(disk="hdd"), p().node_selector(disk="ssd")],
        ["ChangeSelector"],
        "let pod shop/p not ask for disk=ssd, but for disk=hdd",
    ),
    "a zone that is not there": (
        [node("n1").zone("a"), p().node_selector({"topology.kubernetes.io/zone": "b"})],
        ["ChangeSelector"],
        "let pod shop/p not ask for topology.kubernetes.io/zone=b, but for topology.kubernetes.io/zone=a",
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
        "let pod shop/p not ask for spot DoesNotExist",
    ),
    "a little too much requested": (
        [node("n1"), full(cpu="3500m"), p().cpu("600m")],
        ["LowerRequests"],
        "lower what pod shop/p requests: cpu from 600m to 500m; on node n1 cpu 100m is missing",
    ),
    "on the node where the least is missing": (
        [node("n1"), node("n2"), full("n1", "3500m"), full("n2", "3450m", "other"), p().cpu("600m")],
        ["LowerRequests"],
        "lower what pod shop/p requests: cpu from 600m to 550m; on node n2 cpu 50m is missing",
    ),
    "a pod that can move": (
        [node("n1"), node("n2").allocatable(cpu="600m"), full(cpu="500m"), full(cpu="3", name="big"), p().cpu("1")],
        ["FreeRoom"],
        "evict shop/full (to n2) from node n1: cpu 500m is missing",
    ),
    "pods that leave anyway": (
        [node("n1"), full().deleted(), p().cpu("1")],
        ["WaitForPods"],
        "wait until shop/full is gone from node n1: it is being deleted",
    ),
    "a further node, rather than evicting what fits nowhere": (
        [node("n1"), full(), p().cpu("1")],
        ["AddNode"],
        "add a node like n1 (cpu 4, memory 16Gi): a new one takes the pod",
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
        "add a node like small (cpu 4, memory 16Gi): a new one takes the pod",
    ),
    "larger than every node": (
        [node("n1"), node("n2").allocatable(cpu="8"), p().cpu("64")],
        ["LargerNode"],
        "add a node with at least cpu 64: the nearest, n2, has cpu 8 even when it is empty, cpu 56 too little",
    ),
    "a resource that no node has": (
        [node("n1"), p().requests({"x/gpu": "1"})],
        ["LargerNode"],
        "add a node with at least x/gpu 1: the nearest, n1, has x/gpu 0 even when it is empty, x/gpu 1 too little",
    ),
    "a host port that is taken": (
        [node("n1"), pod("web").host_port(80).on("n1"), pod("other").host_port(81).on("n1"), p().host_port(80)],
        ["ChangeHostPort"],
        "give pod shop/p host port 82 in place of 80/TCP, as on node n1 that is taken",
    ),
    "its own anti-affinity": (
        [node("n1"), pod("web").labels(app="web").on("n1"), p().labels(app="web").anti_affinity()],
        ["RelaxAffinity"],
        "let pod shop/p prefer, not require, its podAntiAffinity by kubernetes.io/hostname: node n1 takes it then",
    ),
    "a neighbour it must follow": (
        [node("n1"), p().affinity(labelSelector={"matchLabels": {"app": "db"}})],
        ["RelaxAffinity"],
        "let pod shop/p prefer, not require, its podAffinity by kubernetes.io/hostname: node n1 takes it then",
    ),
    "anti-affinity of others, one of whom can move": (
        [node("n1"), node("n2"), together("web", "n1"), daemon("p").labels(app="web")],
        ["EvictNeighbours"],
        "evict shop/web (to n2) from node n1: required anti-affinity keeps them apart",
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
        "raise the maxSkew of pod shop/p: topology.kubernetes.io/zone from 1 to 4; node n1 takes it then",
    ),
    "a spread over a label that no node has": (
        [node("n1"), p().labels(app="web").spread("rack")],
        ["RelaxSpread"],
        "let pod shop/p prefer, not require, its spread by rack: node n1 takes it then",
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
def test_the_cheapest_change_is(things, reasons, change):
    found = cure(*things)
    if reasons is None:
        assert found is None
        return
    assert found is not None
    assert [step.reason for step in found.steps] == reasons
    assert found.document()["change"] == change


def test_something_may_help_against_every_rule_but_those_that_are_known_to_be_beyond_help():
    """Whoever adds a filter adds a remedy."""
    helped = {rule for remedy in (*REMEDIES, *LIFTINGS) for rule in remedy.rules}
    # A pod that names its node is never asked about, claims are not read, a kubelet's features come with its version.
    beyond = {"NodeName", "DynamicResources"}  # a pod that names its node is never asked about, claims are not read

    assert {rule.name for rule in DEFAULT.filters} - helped == beyond


def test_alternatives_do_without_the_remedies_before_them():
    found = ways(node("n1").taint("gpu"), node("n2"), full("n2", "3500m"), p().cpu("1"))

    assert [way.reason for way in found[:4]] == ["TolerateTaint", "RemoveTaint", "LowerRequests", "AddNode"]
    assert [way.cost for way in found] == sorted(way.cost for way in found)
    assert found[1].document()["change"] == "remove gpu:NoSchedule from node n1"


def test_a_step_names_the_object_and_what_of_it_changes():
    [first, second] = ways(node("n1").taint("gpu", "yes"), p())[:2]

    assert first.document()["steps"] == [
        {
            "reason": "TolerateTaint",
            "change": "let pod shop/p tolerate gpu=yes:NoSchedule of node n1",
            "kind": "Pod",
            "name": "shop/p",
            "field": "spec.tolerations",
            "from": [],
            "to": [{"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}],
        }
    ]
    assert second.document()["steps"][0]["from"] == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    assert second.document()["steps"][0]["to"] == []


def by_reason(reason: str, *things) -> Cure:
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
def test_room_is_freed_by_as_few_and_as_unimportant_pods_as_can_be(there, gone):
    pods = [pod(name).on("n1").cpu(str(cpu)).priority(priority) for name, (cpu, priority) in there.items()]
    found = by_reason("FreeRoom", node("n1"), node("n2"), *pods, daemon("p").cpu("2"))
    [step] = [step for step in found.steps if step.reason == "FreeRoom"]

    assert [each["pod"] for each in step.document()["pods"]] == [f"shop/{name}" for name in gone]


def test_pods_that_would_come_back_are_not_evicted():
    agent = daemon("agent").on("n1").cpu("4")

    assert "FreeRoom" not in {way.reason for way in ways(node("n1"), agent, p().cpu("1"))}


def test_a_new_node_has_the_daemon_sets_pods():
    """So a node of which they leave too little is no help."""
    things = [node("n1"), node("big").allocatable(cpu="8"), full("big", "8", "z"), p().cpu("4")]

    assert by_reason("AddNode", *things, full(cpu="1")).steps[0].details["like"] == "n1"
    assert by_reason("AddNode", *things, daemon("agent").on("n1").cpu("1")).steps[0].details["like"] == "big"


def test_a_new_node_is_of_the_zone_where_the_volume_is():
    claim = PersistentVolumeClaim("shop", "data", volume="v", bind_completed=True, phase="Bound")
    volume = PersistentVolume("v", labels=Labels({ZONE: "b"}), claim="shop/data")
    nodes = [node(f"n{number}").zone("b" if number == 9 else "a") for number in range(12)]
    asked = p().cpu("4").volume("persistentVolumeClaim", claimName="data")
    found = cure(*nodes, full("n9", "4").node_selector({HOSTNAME: "n9"}), claim, volume, asked)

    assert found is not None
    assert found.document()["change"] == "add a node like n9 (cpu 4, memory 16Gi): a new one takes the pod"


def test_pods_of_higher_priority_are_said_to_be_so():
    things = [node("n1"), full().priority(100), p().cpu("4").priority(1)]

    assert by_reason("FreeRoom", *things).document()["change"] == (
        "evict shop/full from node n1: cpu 4 is missing (1 of 1 would fit nowhere else, 1 of higher priority than 1)"
    )


@pytest.mark.parametrize(("policy", "said"), [("", True), ("Never", False)])
def test_preemption_is_said_to_come_by_itself(policy, said):
    asked = p().cpu("4").priority(9).merge(spec={"preemptionPolicy": policy} if policy else {})
    change = by_reason("FreeRoom", node("n1"), full().priority(1), asked).document()["change"]

    assert ("kube-scheduler preempts such pods by itself" in change) is said


def test_the_user_of_a_claim_for_one_pod_only_would_have_to_go():
    claim = PersistentVolumeClaim(
        "shop", "data", volume="v", bind_completed=True, phase="Bound", access_modes=("ReadWriteOncePod",)
    )
    user = pod("user").on("n2").volume("persistentVolumeClaim", claimName="data")
    asked = p().volume("persistentVolumeClaim", claimName="data")
    found = cure(node("n1"), node("n2"), claim, PersistentVolume("v", claim="shop/data"), user, asked)

    assert found is not None
    assert found.document()["change"] == (
        "evict shop/user from node n2: the pod's volumes are in use (1 of 1 would fit nowhere else)"
    )


def test_the_volumes_of_a_node_that_attaches_no_more_are_freed_by_one_pod():
    volumes = [PersistentVolume(name, source="csi", driver="disks", handle=name) for name in "abc"]
    claims = [PersistentVolumeClaim("shop", name, volume=name, bind_completed=True, phase="Bound") for name in "abc"]
    limit = CSINode("n1", drivers=(NodeDriver("disks", 2),))
    users = [pod(name).on("n1").volume("persistentVolumeClaim", claimName=name) for name in "ab"]
    asked = p().volume("persistentVolumeClaim", claimName="c")
    found = by_reason("FreeVolumes", node("n1"), *volumes, *claims, limit, *users, asked)

    assert [each["pod"] for each in found.steps[0].details["pods"]] == ["shop/a"]


def test_a_kubelet_without_a_feature_that_the_pod_needs_would_have_to_be_newer():
    asked = p().build()
    found = cure(node("n1"), replace(asked, spec=replace(asked.spec, required_features=("A", "B"))))

    assert found is not None
    assert found.document()["change"] == "upgrade the kubelet of node n1, or turn on its feature gates: A, B"


def test_nothing_helps_in_a_cluster_of_no_use():
    claim = PersistentVolumeClaim("shop", "data", volume="v", bind_completed=True, phase="Bound")
    elsewhere = NodeSelector((NodeSelectorTerm((LabelRequirement(ZONE, "In", ("gone",)),)),))
    volume = PersistentVolume("v", claim="shop/data", node_affinity=elsewhere)

    assert cure(node("n1").zone("a"), claim, volume, p().volume("persistentVolumeClaim", claimName="data")) is None
