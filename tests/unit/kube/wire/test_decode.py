"""Decoding single objects from JSON and YAML."""

import datetime as dt

import msgspec
import pytest

from tests.builders import HOSTNAME, budget, expression, namespace, node, pod, priority_class
from tests.fixtures.golden import Golden
from trimtab.kube.errors import InputError
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import (
    Affinity,
    Container,
    HostPort,
    LabelRequirement,
    LabelSelector,
    NodeAffinity,
    NodeCondition,
    NodeSelector,
    NodeSelectorTerm,
    OwnerReference,
    PodAffinityTerm,
    PodCondition,
    Taint,
    Toleration,
    TopologySpread,
    Volume,
)
from trimtab.kube.wire.decode import decode_json, decode_object
from trimtab.kube.wire.intern import Interner

NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC).timestamp()


def test_a_pods_own_fields_are_read():
    value = (
        pod("web-1", "shop")
        .on("n1")
        .labels(app="web")
        .owned_by("ReplicaSet", "web")
        .created("2026-11-20T12:00:00Z")
        .deleted("2026-11-20T12:00:01Z")
        .started("2026-11-20T12:00:00.5Z")
        .ready()
        .restarted(3)
        .merge(metadata={"resourceVersion": "7"}, status={"nominatedNodeName": "n2", "reason": "Because"})
        .build()
    )
    assert (value.key, value.uid, value.resource_version) == ("shop/web-1", "pod-shop-web-1", "7")
    assert (value.node, value.nominated_node, value.phase, value.reason) == ("n1", "n2", "Running", "Because")
    assert (value.created, value.deleted, value.started) == (NOON, NOON + 1, NOON + 0.5)
    assert (value.ready, value.ready_since, value.restarts) == (True, NOON, 3)
    assert value.labels == {"app": "web"}
    assert value.owners == (
        OwnerReference(
            kind="ReplicaSet", name="web", uid="replicaset-shop-web", api_version="apps/v1", controller=True
        ),
    )


def test_a_spec_is_read():
    spec = (
        pod()
        .labels(app="web")
        .cpu("250m", "500m")
        .memory("1Gi")
        .host_port(80)
        .priority(5, "high")
        .node_selector(disk="ssd")
        .node_affinity(expression("zone", "In", "a", "b"), fields=(expression("metadata.name", "In", "n1"),))
        .anti_affinity(namespaces=["other"])
        .spread()
        .tolerates("dedicated", "db", "NoSchedule")
        .tolerates("node.kubernetes.io/not-ready", effect="NoExecute", seconds=300)
        .volume("emptyDir")
        .volume("persistentVolumeClaim", claimName="data", readOnly=True)
        .volume("configMap", name="settings")
        .merge(spec={"schedulingGates": [{"name": "g"}], "resourceClaims": [{"name": "gpu"}]})
        .build()
        .spec
    )
    own = LabelSelector(match_labels=FrozenMap(app="web"))
    assert spec.containers == (
        Container(
            name="main",
            image="registry.example/app:1",
            requests=FrozenMap(cpu=250, memory=2**30),
            limits=FrozenMap(cpu=500),
        ),
    )
    assert spec.requests == {"cpu": 250, "memory": 2**30}
    assert spec.qos == "Burstable"
    assert spec.host_ports == (HostPort(80),)
    assert (spec.priority, spec.priority_class_name) == (5, "high")
    assert spec.node_selector == {"disk": "ssd"}
    assert spec.affinity == Affinity(
        node=NodeAffinity(
            required=NodeSelector(
                (
                    NodeSelectorTerm(
                        match_expressions=(LabelRequirement("zone", "In", ("a", "b")),),
                        match_fields=(LabelRequirement("metadata.name", "In", ("n1",)),),
                    ),
                )
            )
        ),
        anti_required=(PodAffinityTerm(HOSTNAME, selector=own, namespaces=("other",)),),
    )
    assert spec.topology_spread == (TopologySpread(1, "topology.kubernetes.io/zone", "DoNotSchedule", selector=own),)
    assert spec.tolerations == (
        Toleration("dedicated", "Equal", "db", "NoSchedule"),
        Toleration("node.kubernetes.io/not-ready", "Exists", effect="NoExecute", seconds=300),
    )
    claim = Volume("persistentVolumeClaim", claim="data", read_only=True)
    assert spec.volumes == (Volume("emptyDir", name="volume-0"), claim)
    assert (spec.scheduling_gates, spec.resource_claims) == (("g",), ("gpu",))
    assert (spec.scheduler_name, spec.restart_policy, spec.termination_grace_period) == (
        "default-scheduler",
        "Always",
        30,
    )


def test_a_healthy_pod_keeps_no_conditions():
    healthy = pod().on("n1").ready().condition("Initialized", "True").condition("PodScheduled", "True").build()
    assert healthy.conditions == ()


def test_conditions_other_than_the_standard_ones_are_kept():
    waiting = pod().unschedulable("0/3 nodes are available.").condition("example.com/gate", "True").build()
    assert waiting.conditions == (
        PodCondition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available.", NOON),
        PodCondition("example.com/gate", "True", since=NOON),
    )
    assert not waiting.ready


def test_only_meaningful_annotations_are_kept():
    value = (
        pod()
        .annotations(
            {
                "descheduler.alpha.kubernetes.io/evict": "true",
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
                "checksum/config": "abc",
                "controller.kubernetes.io/pod-deletion-cost": "5",
            }
        )
        .build()
    )
    assert value.annotations == {
        "controller.kubernetes.io/pod-deletion-cost": "5",
        "descheduler.alpha.kubernetes.io/evict": "true",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    }


def test_a_node_is_read():
    value = (
        node("n1")
        .allocatable({"example.com/gpu": "2"})
        .capacity(cpu="5")
        .zone("a")
        .taint("dedicated", "db", added="2026-11-20T12:00:00Z")
        .cordoned()
        .provider_id("kwok://n1")
        .build()
    )
    assert value.allocatable == {"cpu": 4000, "memory": 16 * 2**30, "pods": 110, "example.com/gpu": 2}
    assert value.capacity["cpu"] == 5000
    assert value.labels == {HOSTNAME: "n1", "topology.kubernetes.io/zone": "a"}
    assert value.taints == (
        Taint("dedicated", "NoSchedule", "db", NOON),
        Taint("node.kubernetes.io/unschedulable", "NoSchedule"),
    )
    assert (value.unschedulable, value.provider_id, value.ready) == (True, "kwok://n1", True)
    assert value.conditions == (NodeCondition("Ready", "True", since=NOON),)


def test_a_node_without_allocatable_offers_its_capacity():
    manifest = node().manifest()
    del manifest["status"]["allocatable"]
    assert decode_object(manifest).allocatable == {"cpu": 4000, "memory": 16 * 2**30, "pods": 110}


def test_a_budget_is_read():
    value = budget("web").selecting(app="web").allowing(0).disrupted("web-2", "web-1").unobserved().build()
    assert value.selector == LabelSelector(match_labels=FrozenMap(app="web"))
    assert (value.disruptions_allowed, value.current_healthy, value.desired_healthy, value.expected_pods) == (
        0,
        3,
        3,
        3,
    )
    assert value.disrupted_pods == ("web-1", "web-2")
    assert value.observed_generation < value.generation


def test_an_empty_selector_is_not_a_missing_one():
    assert budget().selecting().build().selector == LabelSelector()
    assert budget().build().selector is None


def test_a_namespace_has_its_name_as_a_label():
    assert namespace("shop").labels(team="web").build().labels == {
        "kubernetes.io/metadata.name": "shop",
        "team": "web",
    }


def test_node_selector_annotations_of_a_namespace_are_kept():
    kept = {"openshift.io/node-selector": "a=b", "scheduler.alpha.kubernetes.io/node-selector": ""}
    annotations = {**kept, "openshift.io/description": "x"}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "annotations": annotations}}

    assert dict(decode_object(manifest).annotations) == kept


def test_a_priority_class_is_read():
    value = priority_class("high", 1000).by_default().build()
    assert (value.name, value.value, value.global_default) == ("high", 1000, True)


def test_a_pod_of_a_file_is_in_the_default_namespace():
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    assert decode_object(manifest).namespace == "default"


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}, id="another kind"),
        pytest.param({"apiVersion": "metrics.k8s.io/v1", "kind": "Node"}, id="another group"),
        pytest.param({"kind": 3}, id="no kind at all"),
        pytest.param({}, id="nothing"),
    ],
)
def test_other_kinds_are_not_decoded(manifest):
    assert decode_object(manifest) is None


def _containers(**resources):
    return {"spec": {"containers": [{"name": "main", "resources": resources}]}}


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        pytest.param(
            _containers(requests={"cpu": "1K"}),
            "spec.containers[0].resources.requests.cpu",
            "'1K' is not a quantity",
            id="no quantity",
        ),
        pytest.param(
            _containers(limits={"a.b/c": "x"}),
            "spec.containers[0].resources.limits[a.b/c]",
            "'x' is not a quantity",
            id="no quantity of a long name",
        ),
        pytest.param(
            {"spec": {"overhead": {"cpu": True}}},
            "spec.overhead.cpu",
            "expected int | float | str, got bool",
            id="a truth for a quantity",
        ),
        pytest.param({"spec": {"containers": {}}}, "spec.containers", "expected array, got object", id="no list"),
        pytest.param({"spec": 3}, "spec", "expected object, got int", id="no mapping"),
        pytest.param({"spec": {"priority": "high"}}, "spec.priority", "expected int | null, got str", id="no number"),
        pytest.param(
            {"metadata": {"labels": {"a": "x", "v": 1}}}, "metadata.labels.v", "expected str, got int", id="no text"
        ),
        pytest.param(
            {"metadata": {"creationTimestamp": "yesterday"}},
            "metadata.creationTimestamp",
            "invalid RFC3339 encoded datetime",
            id="no time",
        ),
    ],
)
@pytest.mark.parametrize("codec", ["mapping", "json"])
def test_errors_name_object_and_field(change, field, says, codec):
    manifest = pod("web-1", "shop").merge(**change).manifest()
    with pytest.raises(InputError) as caught:
        decode_object(manifest) if codec == "mapping" else decode_json("Pod", msgspec.json.encode(manifest))
    assert caught.value.object == "Pod/shop/web-1"
    assert caught.value.field == field
    assert says in caught.value.message


def test_an_object_without_a_name_is_refused(golden: Golden):
    with pytest.raises(InputError) as raised:
        decode_object({"apiVersion": "v1", "kind": "Node", "metadata": {}})
    golden(str(raised.value))


def test_null_means_absent():
    manifest = pod().cpu("1").manifest()
    manifest["metadata"] |= {"creationTimestamp": None, "labels": None, "ownerReferences": None}
    manifest["spec"] |= {"tolerations": None, "nodeName": None, "affinity": None, "priority": None}
    assert decode_object(manifest) == pod().cpu("1").build()
    assert decode_json("Pod", msgspec.json.encode(manifest)) == pod().cpu("1").build()


def test_numbers_are_quantities_as_they_are_in_yaml():
    assert pod().requests({"cpu": 0.5, "memory": 1024, "pods": 1}).build().spec.requests == {
        "cpu": 500,
        "memory": 1024,
        "pods": 1,
    }


def test_yaml_timestamps_are_times():
    manifest = pod().manifest()
    manifest["metadata"]["creationTimestamp"] = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
    assert decode_object(manifest).created == NOON


def test_host_network_takes_all_container_ports():
    value = pod().merge(spec={"hostNetwork": True, "containers": [{"name": "a", "ports": [{"containerPort": 9100}]}]})
    assert value.build().spec.host_ports == (HostPort(9100),)


def test_host_ports_of_sidecars_count_and_of_init_steps_do_not():
    value = (
        pod()
        .host_port(80)
        .host_port(53, "UDP", ip="10.0.0.1")
        .init_container("sidecar", restartPolicy="Always", ports=[{"hostPort": 81, "containerPort": 1}])
        .init_container("step", ports=[{"hostPort": 82, "containerPort": 1}])
    )
    assert value.build().spec.host_ports == (HostPort(81), HostPort(80), HostPort(53, "UDP", "10.0.0.1"))


def test_pods_of_a_template_share_spec_labels_and_owner():
    interner = Interner()
    template = pod().cpu("1").labels(app="web").owned_by("ReplicaSet", "web")
    one, other = (
        decode_object(template.on(node).merge(metadata={"name": node}).manifest(), interner=interner)
        for node in ("n1", "n2")
    )
    assert one.node != other.node
    assert one.spec is other.spec
    assert one.labels is other.labels
    assert one.owners is other.owners


def test_fields_that_are_not_read_do_not_separate_equal_specs():
    interner = Interner()
    specs = [
        decode_object(
            pod().volume("projected", sources=[]).merge(spec={"hostname": name}).manifest(), interner=interner
        )
        for name in ("a", "b")
    ] + [decode_object(pod().manifest(), interner=interner)]
    assert len({id(value.spec) for value in specs}) == 1


def test_the_recorded_quality_of_service_wins():
    value = pod().cpu("1").merge(status={"qosClass": "BestEffort"}).build()
    assert (value.spec.qos, value.spec.requests) == ("BestEffort", {"cpu": 1000})


RESIZED = [{"name": "main", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "3"}}]


@pytest.mark.parametrize(
    ("wanted", "condition", "reason", "counted"),
    [
        pytest.param("5", "PodResizePending", "Deferred", 5000, id="wants more than it has"),
        pytest.param("1", "PodResizeInProgress", "", 3000, id="still has more than it wants"),
        pytest.param("5", "PodResizePending", "Infeasible", 3000, id="can never have it"),
        pytest.param("5", "example.com/other", "", 5000, id="is not being resized"),
    ],
)
def test_resized_pod_counts_with_its_maximum_requests(wanted, condition, reason, counted):
    value = pod().cpu(wanted).condition(condition, "True", reason=reason).merge(status={"containerStatuses": RESIZED})
    assert value.build().spec.requests == {"cpu": counted}


def states(builder):
    return [(each.kind, each.name, each.reason, each.exit_code) for each in builder.build().container_states]


@pytest.mark.parametrize(
    ("builder", "expected"),
    [
        pytest.param(pod().container_state(), [], id="it runs"),
        pytest.param(pod().merge(status={"containerStatuses": [{"name": "main"}]}), [], id="nothing is told of it"),
        pytest.param(
            pod().container_state("CrashLoopBackOff"),
            [("container", "main", "CrashLoopBackOff", None)],
            id="it waits",
        ),
        pytest.param(
            pod().container_state().container_state("OOMKilled", exit_code=137),
            [("container", "main-1", "OOMKilled", 137)],
            id="one of two has ended",
        ),
        pytest.param(
            pod().container_state("Completed", exit_code=0, of="initContainer"),
            [("init container", "initContainer", "Completed", 0)],
            id="an init container has completed",
        ),
        pytest.param(
            pod().container_state("Error", exit_code=1, of="ephemeralContainer"),
            [("ephemeral container", "ephemeralContainer", "Error", 1)],
            id="an ephemeral container has ended",
        ),
    ],
)
def test_containers_that_do_not_run_are_kept(builder, expected):
    assert states(builder) == expected


def test_pods_share_equal_container_states():
    interner = Interner()
    one, other = (
        decode_object(
            pod(f"web-{number}").container_state("Completed", exit_code=0, of="initContainer").manifest(),
            interner=interner,
        )
        for number in (1, 2)
    )
    assert one.container_states is other.container_states


def conditions(builder):
    return [(each.type, each.status, each.reason, each.since) for each in builder.build().all_conditions()]


def test_a_ready_pod_has_every_standard_condition():
    ready = (
        pod()
        .started("2026-11-20T11:00:00Z")
        .ready(since="2026-11-20T12:00:00Z")
        .condition("Initialized", "True", since="2026-11-20T11:30:00Z")
        .condition("Custom", "False", reason="Because", since="2026-11-20T12:00:00Z")
    )
    assert conditions(ready) == [
        ("Custom", "False", "Because", NOON),
        ("PodScheduled", "True", "", NOON - 3600),
        ("PodReadyToStartContainers", "True", "", NOON),
        ("Initialized", "True", "", NOON),
        ("ContainersReady", "True", "", NOON),
        ("Ready", "True", "", NOON),
    ]


def test_of_a_pod_that_is_not_ready_all_conditions_are_kept():
    ended = (
        pod()
        .condition("Initialized", "True", reason="PodCompleted", since="2026-11-20T12:00:00Z")
        .condition("Ready", "False", reason="PodCompleted", since="2026-11-20T12:00:00Z")
        .merge(metadata={"name": "job"})
    )
    assert conditions(ended) == [
        ("Ready", "False", "PodCompleted", NOON),
        ("Initialized", "True", "PodCompleted", NOON),
    ]


def test_a_condition_may_have_no_time():
    assert conditions(pod().merge(status={"conditions": [{"type": "PodScheduled", "status": "True"}]})) == [
        ("PodScheduled", "True", "", None)
    ]
