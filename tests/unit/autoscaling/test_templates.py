"""Node templates, learned from a node or estimated from annotations."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import (
    HOSTNAME,
    ZONE,
    cluster_machine_set,
    csi_node,
    daemon_set,
    expression,
    machine_deployment,
    machine_set,
    node,
    pod,
)
from tests.fixtures.golden import Golden
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec, ScaleUp
from trimtab.autoscaling.groups import build_groups
from trimtab.autoscaling.template import NodeTemplate, TemplateOrigin, Templates, build_templates
from trimtab.autoscaling.template.node_template import allocatable, reserve
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import ResourceList
from trimtab.kube.objects import Node, Taint
from trimtab.placement.placer import Placer

NOW = 1_795_176_000.0  # 2026-11-20T12:00:00Z
LONG_AGO, JUST_NOW = "2026-11-20T10:00:00Z", "2026-11-20T11:59:30Z"
GIB = 1 << 30


def made(*builders: Any, startup: tuple[str, ...] = ()) -> Templates:
    snapshot = Snapshot([builder.build() for builder in builders])
    return build_templates(
        snapshot, build_groups(snapshot).all, now=NOW, spec=ClusterAutoscalerSpec(startup_taints=startup)
    )


def only(*builders: Any, **options: Any) -> NodeTemplate:
    found = made(*builders, **options)
    assert not found.problems
    (template,) = found.of_group.values()
    return template


def workers(**labels: str) -> Any:
    return machine_set().limits(0, 9).replicas(1).node_labels(labels)


def settled(name: str, created: str = LONG_AGO) -> Any:
    return node(name).created(created).condition("Ready", "True", since=LONG_AGO)


class TestLearning:
    def test_template_equals_the_existing_node(self) -> None:
        owner = workers()
        sample = settled("n1").zone("a").labels(pool="x").allocatable(cpu="3500m", memory="14Gi").capacity(cpu="4")

        template = only(owner, owner.machine("m").on("n1"), sample)

        assert (template.origin, template.sample, template.group) == (
            TemplateOrigin.LEARNED,
            "n1",
            "MachineSet/openshift-machine-api/workers-a",
        )
        assert template.node.labels == {ZONE: "a", "pool": "x"}
        assert (template.node.allocatable["cpu"], template.node.capacity["cpu"]) == (3500, 4000)
        assert template.node.ready
        assert not template.assumptions

    def test_labels_of_a_single_node_are_left_out(self) -> None:
        owner = workers()
        sample = settled("n1").labels({"example.com/machine": "m", "example.com/host": "n1", "pool": "x"})
        sample.annotations({"machine.openshift.io/machine": "openshift-machine-api/m"})
        sample.provider_id("x://1").image("app:1", size=9)

        template = only(owner, owner.machine("m").on("n1"), sample).node

        assert template.labels == {"pool": "x"}
        assert (template.annotations, template.provider_id, template.images) == ({}, "", {})

    def test_labels_and_taints_of_the_groups_object_are_included(self) -> None:
        owner = workers(pool="new").node_taint("dedicated", "new")

        template = only(owner, owner.machine("m").on("n1"), settled("n1").labels(pool="old").taint("dedicated", "old"))

        assert template.node.labels["pool"] == "new"
        assert template.node.taints == (Taint("dedicated", "NoSchedule", "new"),)

    def test_first_of_the_taints_that_differ_in_value_is_used(self) -> None:
        owner = workers().node_taint("dedicated", "first").node_taint("dedicated", "second")

        template = only(owner, owner.machine("m").on("n1"), settled("n1"))

        assert template.node.taints == (Taint("dedicated", "NoSchedule", "first"),)

    @pytest.mark.parametrize(
        "key",
        [
            "ToBeDeletedByClusterAutoscaler",
            "DeletionCandidateOfClusterAutoscaler",
            "node.kubernetes.io/disk-pressure",
            "pressure.trimtab.dev/memory",
            "node.kubernetes.io/unschedulable",
            "node.cloudprovider.kubernetes.io/uninitialized",
            "node.cluster.x-k8s.io/outdated-revision",
            "startup-taint.cluster-autoscaler.kubernetes.io/cni",
            "readiness.k8s.io/storage",
            "ignore-taint.cluster-autoscaler.kubernetes.io/cni",
            "status-taint.cluster-autoscaler.kubernetes.io/busy",
            "example.com/starting",
        ],
    )
    def test_state_taints_are_left_out(self, key: str) -> None:
        owner = workers()
        sample = settled("n1").taint(key).taint("dedicated", "db")

        template = only(owner, owner.machine("m").on("n1"), sample, startup=("example.com/starting",))

        assert template.node.taints == (Taint("dedicated", "NoSchedule", "db"),)

    @pytest.mark.parametrize("with_a_node", [True, False])
    def test_startup_taints_of_the_groups_object_are_left_out(self, with_a_node: bool) -> None:
        owner = workers().capacity(cpu="4", memory="16Gi", taints="example.com/agent:NoSchedule")
        owner.node_taint("example.com/starting").node_taint("dedicated", "db")
        there = (owner.machine("m").on("n1"), settled("n1")) if with_a_node else ()

        template = only(owner, *there, startup=("example.com/starting", "example.com/agent"))

        assert template.node.taints == (Taint("dedicated", "NoSchedule", "db"),)

    def test_taint_of_a_single_node_is_left_out(self) -> None:
        owner = workers()
        both = settled("n1"), settled("n2", created="2026-11-20T10:30:00Z").taint("maintenance").taint("dedicated", "b")
        both[0].taint("dedicated", "b")

        template = only(owner, owner.machine("a").on("n1"), owner.machine("b").on("n2"), *both)

        assert (template.sample, template.node.taints) == ("n2", (Taint("dedicated", "NoSchedule", "b"),))

    @pytest.mark.parametrize("api", ["Machine API", "Cluster API"])
    @pytest.mark.parametrize(
        ("machines", "node_has", "template_has", "new_node_has"),
        [
            ([], [], [("a", "1")], [("a", "1")]),
            ([("a", "1")], [("a", "1")], [], []),
            ([("a", "1")], [("a", "1")], [("a", "2")], [("a", "2")]),
            ([("a", "1")], [("a", "1")], [("b", "")], [("b", "")]),
            ([("a", "1")], [("a", "1"), ("hand", "")], [], [("hand", "")]),
            ([], [("a", "1")], [], [("a", "1")]),
            ([("a", "1")], [], [("a", "1")], [("a", "1")]),
        ],
        ids=[
            "added to the template",
            "removed from the template",
            "changed value",
            "replaced taint",
            "taint of another actor on all nodes",
            "taint that no template defines",
            "removed from the node by hand",
        ],
    )
    def test_changed_taints_of_the_groups_object_override_existing_nodes(
        self, api: str, machines: Any, node_has: Any, template_has: Any, new_node_has: Any
    ) -> None:
        owner = workers() if api == "Machine API" else cluster_machine_set().limits(0, 9).replicas(1)
        sample, machine = settled("n1"), owner.machine("m").on("n1")
        for taints, builder in (
            (machines, machine.node_taint),
            (node_has, sample.taint),
            (template_has, owner.node_taint),
        ):
            for key, value in taints:
                builder(key, value)

        template = only(owner, machine, sample)

        assert template.origin is TemplateOrigin.LEARNED
        assert [(each.key, each.value) for each in template.node.taints] == new_node_has

    def test_labels_that_the_object_no_longer_defines_are_left_out(self) -> None:
        owner = workers(pool="new")
        machine = owner.machine("m").on("n1").node_labels(pool="old", gone="x", changed="x")
        sample = settled("n1").labels(pool="old", gone="x", changed="by hand", other="x")

        template = only(owner, machine, sample)

        assert template.node.labels == {"pool": "new", "changed": "by hand", "other": "x"}

    @pytest.mark.parametrize(
        ("given", "there", "comes"),
        [(True, False, False), (True, True, True), (False, False, True)],
        ids=["removed from the node since", "still on the node", "new in the template"],
    )
    def test_initial_taint_counts_while_nodes_keep_it(self, given: bool, there: bool, comes: bool) -> None:
        owner = cluster_machine_set().limits(0, 9).replicas(1).node_taint("once", propagation="OnInitialization")
        owner.node_taint("kept", propagation="Always")
        machine, sample = owner.machine("m").on("n1"), settled("n1")
        if given:
            machine.node_taint("once")
        if there:
            sample.taint("once")

        template = only(owner, machine, sample)

        assert [each.key for each in template.node.taints] == ["kept", *(["once"] if comes else [])]

    def test_topology_label_is_left_out_if_nodes_differ(self, golden: Golden) -> None:
        owner = workers()
        region = "topology.kubernetes.io/region"
        nodes = [settled(f"n{zone}").zone(zone).labels({region: "r"}) for zone in "ab"]

        template = only(owner, owner.machine("a").on("na"), owner.machine("b").on("nb"), *nodes)

        assert template.node.labels == {region: "r"}
        golden(template.assumptions[0])

    @pytest.mark.parametrize(
        ("nodes", "sample", "words"),
        [
            ([settled("n1"), settled("n2", created="2026-11-20T10:30:00Z")], "n2", ""),
            ([settled("n2"), settled("n1")], "n1", ""),
            ([settled("n1"), settled("n2", created=JUST_NOW).condition("Ready", "True", since=JUST_NOW)], "n1", ""),
            ([node("n1").created(JUST_NOW).condition("Ready", "True", since=JUST_NOW)], "n1", "less than 60s"),
            ([settled("n1"), settled("n2", created="2026-11-20T10:30:00Z").cordoned()], "n1", ""),
            ([settled("n1"), settled("n2", created="2026-11-20T10:30:00Z").not_ready()], "n1", ""),
            ([settled("n1"), settled("n2").taint("ToBeDeletedByClusterAutoscaler", "1")], "n1", ""),
            ([settled("n1"), settled("n2").taint("startup-taint.cluster-autoscaler.kubernetes.io/x")], "n1", ""),
            ([settled("n1"), settled("n2").deleted()], "n1", ""),
            ([settled("n1").allocatable({"a/gpu": "1"}), settled("n2", created="2026-11-20T11:00:00Z")], "n1", ""),
            ([settled("n1").not_ready()], "n1", "which is not ready or not schedulable"),
        ],
        ids=[
            "the newest",
            "first by name among equals",
            "not a node that has just become ready",
            "fresh node without alternative",
            "not a cordoned node",
            "not an unready node",
            "not a node to be deleted",
            "not a starting node",
            "not a deleting node",
            "not a node without its devices",
            "unready node without alternative",
        ],
    )
    def test_sample_is_chosen_by_quality(self, nodes: list[Any], sample: str, words: str) -> None:
        owner = workers()
        machines = [owner.machine(f"m-{each.manifest()['metadata']['name']}") for each in nodes]
        for each, machine in zip(nodes, machines, strict=True):
            machine.on(each.manifest()["metadata"]["name"])

        template = only(owner, *machines, *nodes)

        assert template.sample == sample
        assert words in "; ".join(template.assumptions)
        assert template.node.ready
        assert not template.node.unschedulable

    def test_annotations_are_preferred_to_an_unhealthy_node(self) -> None:
        owner = workers().capacity(cpu="8", memory="32Gi")

        template = only(owner, owner.machine("m").on("n1"), settled("n1").not_ready())

        assert (template.origin, template.node.capacity["cpu"]) == (TemplateOrigin.ANNOTATIONS, 8000)

    def test_deleting_machine_is_a_sample_of_last_resort(self) -> None:
        owner = workers()
        nodes = settled("n1"), settled("n2", created="2026-11-20T11:00:00Z")

        template = only(owner, owner.machine("a").on("n1"), owner.machine("b").on("n2").deleted(), *nodes)

        assert template.sample == "n1"

    def test_csi_drivers_are_included(self) -> None:
        owner = workers()

        template = only(owner, owner.machine("m").on("n1"), settled("n1"), csi_node("n1").driver("csi.example", 5))

        assert template.drivers is not None
        assert [(each.name, each.limit) for each in template.drivers.drivers] == [("csi.example", 5)]


class TestPodsOfNewNodes:
    def test_daemon_set_and_static_pods_of_the_sample_are_included(self) -> None:
        owner = workers()
        on_node = [
            pod("agent-x", "kube-system").on("n1").owned_by("DaemonSet", "agent").cpu("100m"),
            pod("kube-proxy-n1", "kube-system").on("n1").owned_by("Node", "n1").mirror().cpu("50m"),
            pod("web-1").on("n1").owned_by("ReplicaSet", "web").cpu("1"),
            pod("old-x", "kube-system").on("n1").owned_by("DaemonSet", "old").deleted(),
            pod("done-x", "kube-system").on("n1").owned_by("DaemonSet", "done").phase("Failed"),
        ]

        template = only(owner, owner.machine("m").on("n1"), settled("n1"), *on_node)

        assert [each.key for each in template.pods] == ["kube-system/agent", "kube-system/kube-proxy"]
        assert {each.node for each in template.pods} == {template.node.name}
        assert template.free["cpu"] == 4000 - 150
        assert template.free["pods"] == 110 - 2

    def test_missing_daemon_set_pod_is_expected_if_the_node_matches(self) -> None:
        owner = workers()
        sets = [
            daemon_set("new").of_pods(pod().cpu("200m")),
            daemon_set("gpu").of_pods(pod().node_selector(gpu="yes")),
            daemon_set("infra").of_pods(pod().node_affinity(expression("pool", "In", "infra"))),
            daemon_set("leaving").of_pods(pod()).deleted(),
        ]

        template = only(owner, owner.machine("m").on("n1"), settled("n1").labels(pool="x"), *sets)

        assert [each.key for each in template.pods] == ["kube-system/new"]
        assert template.free["cpu"] == 3800

    @pytest.mark.parametrize(("tolerates", "comes"), [(True, 1), (False, 0)])
    def test_daemon_set_must_tolerate_the_groups_taints(self, tolerates: bool, comes: int) -> None:
        template_pod = pod().tolerates("dedicated") if tolerates else pod()
        owner = workers().capacity(cpu="4", memory="16Gi").node_taint("dedicated", "db")

        template = only(owner, daemon_set().of_pods(template_pod))

        assert len(template.pods) == comes

    def test_pod_on_the_sample_is_used_as_admission_changed_it(self) -> None:
        owner = workers()
        there = pod("agent-x", "kube-system").on("n1").owned_by("DaemonSet", "agent").cpu("300m")

        template = only(
            owner, owner.machine("m").on("n1"), settled("n1"), there, daemon_set().of_pods(pod().cpu("100m"))
        )

        assert [each.spec.requests["cpu"] for each in template.pods] == [300]

    def test_empty_group_learns_daemon_set_pods_from_other_nodes(self) -> None:
        owner = workers().capacity(cpu="4", memory="16Gi")
        named = expression("metadata.name", "In", "elsewhere")
        agent = pod("agent-x", "kube-system").on("elsewhere").owned_by("DaemonSet", "agent").cpu("100m")
        agent.node_affinity(fields=(named,))
        gpu = pod("gpu-x", "kube-system").on("elsewhere").owned_by("DaemonSet", "gpu").node_selector(gpu="yes")

        template = only(owner, node("elsewhere"), agent, gpu)

        assert [each.key for each in template.pods] == ["kube-system/agent"]
        assert "kube-system/agent" in template.assumptions[-1]

    def test_instance_is_a_node_with_its_pods(self) -> None:
        owner = workers()
        agent = pod("agent-x", "kube-system").on("n1").owned_by("DaemonSet", "agent").cpu("1")
        built = [owner, owner.machine("m").on("n1"), settled("n1"), agent, csi_node("n1").driver("csi.example", 5)]
        snapshot = Snapshot([builder.build() for builder in built])
        (template,) = build_templates(snapshot, build_groups(snapshot).all, now=NOW).of_group.values()

        for name in ("new-1", "new-2"):
            for each in template.instance(name):
                snapshot.put(each)

        assert isinstance(template.instance("new-1")[0], Node)
        assert snapshot.nodes.node(snapshot.nodes.slot_of["new-1"]).labels[HOSTNAME] == "new-1"
        assert [each.key for each in snapshot.pods_on("new-2")] == ["kube-system/agent-new-2"]
        placed = Placer(snapshot).place([pod(f"web-{number}").cpu("3").build() for number in range(4)])
        assert [each.pod.node for each in placed] == ["n1", "new-1", "new-2", ""]


class TestEstimating:
    def test_group_without_nodes_uses_its_annotations(self) -> None:
        owner = workers(pool="x").capacity(cpu="4", memory="16Gi", ephemeral_disk="100Gi", maxPods="250")
        owner.capacity(gpu_count="2", gpu_type="amd.com/gpu", labels="kubernetes.io/arch=arm64,zone=a,empty=")
        owner.capacity(taints="a=b:NoSchedule,c:NoExecute", csi_driver="csi.example=25").node_taint("a", "old")

        template = only(owner)

        assert (template.origin, template.sample) == (TemplateOrigin.ANNOTATIONS, "")
        assert template.node.capacity == {
            "cpu": 4000,
            "memory": 16 * GIB,
            "ephemeral-storage": 100 * GIB,
            "pods": 250,
            "amd.com/gpu": 2,
        }
        assert template.node.labels == {
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "arm64",
            "pool": "x",
            "zone": "a",
            "empty": "",
        }
        assert template.node.taints == (Taint("a", "NoSchedule", "b"), Taint("c", "NoExecute"))
        assert template.drivers is not None
        assert [(each.name, each.limit) for each in template.drivers.drivers] == [("csi.example", 25)]

    def test_openshifts_older_keys_are_read_after_upstreams(self) -> None:
        old = {"vCPU": "4", "memoryMb": "16384", "GPU": "1", "maxPods": "200"}
        owner = workers().annotations({f"machine.openshift.io/{key}": text for key, text in old.items()})

        assert only(owner).node.capacity == {"cpu": 4000, "memory": 16 * GIB, "pods": 200, "nvidia.com/gpu": 1}
        assert only(owner.capacity(cpu="8")).node.capacity["cpu"] == 8000

    @pytest.mark.parametrize(
        ("nodes", "arch"),
        [
            ([], None),
            (["arm64", "arm64"], "arm64"),
            (["arm64", "amd64"], None),
            (["arm64", "amd64", "control-plane s390x"], "s390x"),
            (["arm64", "control-plane amd64", "control-plane arm64"], None),
        ],
        ids=["no nodes", "one architecture", "two", "the control plane's", "two of control planes"],
    )
    def test_architecture_is_that_of_the_cluster_and_an_assumption(
        self, nodes: list[str], arch: str | None, golden: Golden
    ) -> None:
        others = []
        for number, text in enumerate(nodes):
            role, _, value = text.rpartition(" ")
            labels = {"kubernetes.io/arch": value} | ({"node-role.kubernetes.io/control-plane": ""} if role else {})
            others.append(node(f"other-{number}").labels(labels))
        template = only(workers().capacity(cpu="4", memory="16Gi"), *others)

        assert template.node.labels.get("kubernetes.io/arch") == arch
        assert template.node.labels.get("kubernetes.io/os") == "linux"
        golden(next(each for each in template.assumptions if each.startswith("kubernetes.io/arch")))

    def test_stated_default_architecture_has_precedence_over_the_clusters(self) -> None:
        builders = workers().capacity(cpu="4", memory="16Gi"), node("n1").labels({"kubernetes.io/arch": "amd64"})
        snapshot = Snapshot([builder.build() for builder in builders])
        spec = ClusterAutoscalerSpec(scale_up=ScaleUp(default_architecture="arm64"))
        found = build_templates(snapshot, build_groups(snapshot).all, now=NOW, spec=spec)

        (template,) = found.of_group.values()
        assert template.node.labels["kubernetes.io/arch"] == "arm64"
        assert (
            only(builders[0].capacity(labels="kubernetes.io/arch=s390x")).node.labels["kubernetes.io/arch"] == "s390x"
        )

    @pytest.mark.parametrize(
        ("accepted", "pods"),
        [([], 110), (["250"], 250), (["250", "250"], 250), (["29", "58"], 110)],
        ids=["no nodes", "one node", "equal nodes", "different nodes"],
    )
    def test_number_of_pods_is_that_of_the_clusters_nodes(self, accepted: list[str], pods: int) -> None:
        control_plane = node("cp").labels({"node-role.kubernetes.io/control-plane": ""}).allocatable(pods="500")
        others = [node(f"n{number}").allocatable(pods=each) for number, each in enumerate(accepted)]
        template = only(workers().capacity(cpu="4", memory="16Gi"), control_plane, *others)

        assert template.node.allocatable["pods"] == pods
        assert any(each.startswith(f"at most {pods} pods") for each in template.assumptions)

    @pytest.mark.parametrize(
        ("sizes", "expected"),
        [
            ([], 80),
            ([("4", "3500m"), ("8", "7500m")], 500),
            ([("4", "4"), ("8", "8")], 0),
            ([("4", "3500m"), ("8", "7")], 80),
            ([("4", "3500m"), ("4", "3500m")], 500),
            ([("4", "4"), ("4", "4")], 80),
        ],
        ids=["no nodes", "equal", "none", "different", "of one size", "none of one size"],
    )
    def test_reserve_is_that_of_the_clusters_nodes(self, sizes: list[tuple[str, str]], expected: int) -> None:
        """Nodes of one size do not say what a larger one reserves: it is at least as much."""
        others = []
        for number, (capacity, left) in enumerate(sizes):
            others.append(node(f"n{number}").allocatable(cpu=left).capacity(cpu=capacity))
        template = only(workers().capacity(cpu="4", memory="16Gi"), *others)

        assert template.node.capacity["cpu"] - template.node.allocatable["cpu"] == expected

    @pytest.mark.parametrize(
        ("capacity", "missing"),
        [
            ({}, ["cpu", "vCPU", "memory", "memoryMb"]),
            ({"cpu": "4"}, ["memory", "memoryMb"]),
            ({"memory": "4Gi"}, ["cpu", "vCPU"]),
            ({"cpu": "0", "memory": "4Gi"}, ["cpu", "vCPU"]),
        ],
        ids=["none", "no memory", "no cpu", "no cpus"],
    )
    def test_missing_capacity_annotations_are_reported(self, capacity: Any, missing: list[str]) -> None:
        found = made(workers().capacity(**capacity), machine_set("good").limits(0, 1).capacity(cpu="1", memory="1Gi"))

        (problem,) = found.problems
        assert list(found.of_group) == ["MachineSet/openshift-machine-api/good"]
        assert (problem.kind, problem.name, problem.reason) == ("MachineSet", "workers-a", "NoTemplate")
        named = re.findall(r"(?:capacity.cluster-autoscaler.kubernetes|machine.openshift).io/(\w+)", problem.message)
        assert named == missing

    @pytest.mark.parametrize(
        ("key", "text", "words"),
        [
            ("ephemeral-disk", "much", "'much' is not a quantity"),
            ("ephemeral-disk", "-1Gi", "must not be negative"),
            ("maxPods", "many", "must be a whole number, not 'many'"),
            ("gpu-count", "1.5", "must be a whole number, not '1.5'"),
            ("labels", "a b=c", "must be comma-separated labels of the form key=value, not 'a b=c'"),
            ("labels", "zone", "must be comma-separated labels of the form key=value"),
            ("taints", "a=b", "must be comma-separated taints of the form key=value:NoSchedule, not 'a=b'"),
            ("taints", "a=b:Never", "must be comma-separated taints of the form key=value:NoSchedule"),
            ("csi-driver", "csi.example", "must be comma-separated drivers of the form name=limit"),
        ],
    )
    def test_invalid_annotation_is_reported_and_ignored(self, key: str, text: str, words: str) -> None:
        name = f"capacity.cluster-autoscaler.kubernetes.io/{key}"
        owner = workers().capacity(cpu="4", memory="16Gi").annotations({name: text})

        found = made(owner)

        (problem,) = found.problems
        assert len(found.of_group) == 1
        assert problem.reason == "InvalidAnnotation"
        assert problem.message.startswith(f"annotation {name} ")
        assert words in problem.message

    def test_memory_in_the_old_key_must_be_an_integer_of_mebibytes(self, golden: Golden) -> None:
        owner = workers().capacity(cpu="4").annotations({"machine.openshift.io/memoryMb": "16Gi"})

        problems = {problem.reason: problem.message for problem in made(owner).problems}

        golden(problems["InvalidAnnotation"])
        assert "NoTemplate" in problems

    def test_cluster_api_gpus_require_a_type(self, golden: Golden) -> None:
        owner = machine_deployment().limits(0, 1).capacity(cpu="4", memory="16Gi", gpu_count="2")

        (problem,) = made(owner).problems

        golden(problem.message)

    def test_estimated_reserve_is_subtracted_and_is_an_assumption(self) -> None:
        template = only(workers().capacity(cpu="4", memory="16Gi", ephemeral_disk="100Gi"))

        assert template.node.allocatable["cpu"] == 3920
        assert template.node.allocatable["memory"] == 16 * GIB - reserve(template.node.capacity)["memory"]
        assert template.node.allocatable["ephemeral-storage"] == 90 * GIB
        assert template.node.allocatable["pods"] == 110
        assert any("80m cpu" in each for each in template.assumptions)

    def test_reserve_can_be_annotated(self) -> None:
        annotations = {"trimtab.dev/reserved": "cpu=500m, memory=1Gi,example.com/gpu=1"}
        owner = workers().capacity(cpu="4", memory="16Gi", gpu_count="2", gpu_type="example.com/gpu")

        template = only(owner.annotations(annotations)).node

        assert (template.allocatable["cpu"], template.allocatable["memory"]) == (3500, 15 * GIB)
        assert template.allocatable["example.com/gpu"] == 1

    def test_invalid_reserve_is_reported(self, golden: Golden) -> None:
        owner = workers().capacity(cpu="4", memory="16Gi").annotations({"trimtab.dev/reserved": "cpu=some"})

        (problem,) = made(owner).problems

        golden(problem.message)


@pytest.mark.parametrize(
    ("name", "amount", "held"),
    [
        ("cpu", 1000, 60),
        ("cpu", 4000, 80),
        ("cpu", 64000, 230),
        ("memory", GIB // 2, (255 << 20) + (100 << 20)),
        ("memory", 4 * GIB, GIB + (100 << 20)),
        ("memory", 8 * GIB, GIB + 4 * GIB // 5 + 1 + (100 << 20)),
        ("ephemeral-storage", 100, 10),
        ("ephemeral-storage", 101, 11),
        ("pods", 110, 0),
        ("nvidia.com/gpu", 8, 0),
    ],
)
def test_reserved_share_decreases_with_node_size(name: str, amount: int, held: int) -> None:
    assert reserve(ResourceList({name: amount})).get(name, 0) == held


@given(st.integers(1, 10**6), st.integers(1, 2**45), st.integers(0, 2**45))
def test_reserve_never_exceeds_capacity_and_allocatable_is_monotonic(cpu: int, memory: int, disk: int) -> None:
    small = ResourceList({"cpu": cpu, "memory": memory, "ephemeral-storage": disk})
    large = ResourceList({name: 2 * amount for name, amount in small.items()})
    left, more = (allocatable(each, reserve(each)) for each in (small, large))

    assert all(0 <= left[name] <= small[name] for name in small)
    assert all(left[name] <= more[name] for name in small)


def world() -> list[Any]:
    built: list[Any] = [daemon_set(name).of_pods(pod().cpu("50m")) for name in ("a", "b")]
    for letter in "abc":
        owner = machine_set(f"workers-{letter}").limits(0, 9).capacity(cpu="4", memory="16Gi")
        built.append(owner)
        for number in range(3 if letter != "c" else 0):
            name = f"{letter}{number}"
            agent = pod(f"agent-{name}", "kube-system").on(name).owned_by("DaemonSet", "agent").cpu("100m")
            built += [owner.machine(name).on(name), settled(name).zone(str(number)), agent]
    return [builder.build() for builder in built]


@given(st.permutations(world()))
def test_templates_do_not_depend_on_the_order_of_objects(objects: list[Any]) -> None:
    one, other = Snapshot(objects), Snapshot(world())

    assert build_templates(one, build_groups(one).all, now=NOW) == build_templates(
        other, build_groups(other).all, now=NOW
    )
