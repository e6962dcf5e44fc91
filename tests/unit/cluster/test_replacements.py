"""The pod that a controller creates in place of a running one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import (
    HOSTNAME,
    ZONE,
    job,
    pod,
    priority_class,
    replica_set,
    replication_controller,
    stateful_set,
    vertical_pod_autoscaler,
)
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.replacements import Replacements, differences, pinned
from trimtab.disruption.protections.causes import bound_by_name
from trimtab.kube.objects import Pod

OWNERS = {
    "ReplicaSet": replica_set,
    "StatefulSet": stateful_set,
    "ReplicationController": replication_controller,
}


def replacement(running: Any, *others: Any) -> Pod:
    snapshot = Snapshot([running.build(), *(each.build() for each in others)])
    return Replacements(snapshot).of(snapshot.pods[f"shop/{running.manifest()['metadata']['name']}"])


def app(name: str = "web-1", kind: str = "ReplicaSet", *, generation: int = 0) -> Any:
    built = pod(name).on("n1").labels(app="web").owned_by(kind, "web")
    return built.merge(metadata={"generation": generation}) if generation else built


@pytest.mark.parametrize("kind", OWNERS)
@pytest.mark.parametrize("resized", ["500m", "4"], ids=["smaller", "larger"])
def test_requests_are_those_of_the_template(kind: str, resized: str) -> None:
    running = app(kind=kind, generation=2).requests(cpu=resized, memory="1Gi")

    made = replacement(running, OWNERS[kind]("web").of_pods(pod().labels(app="web").requests(cpu="3")))

    assert made.node == ""
    assert made.spec.requests == {"cpu": 3000, "memory": 1 << 30}
    assert made.spec.scored_requests["cpu"] == made.spec.nonzero_requests["cpu"] == 3000
    assert "cpu 3 instead of" in differences(running.build(), made)


def test_pod_without_differences_is_its_own_replacement() -> None:
    running = app(generation=2).requests(cpu="1").tolerates("node.kubernetes.io/not-ready", effect="NoExecute")
    made = replacement(running, replica_set("web").of_pods(pod().labels(app="web").requests(cpu="1")))
    assert made.spec == running.build().spec
    assert differences(running.build(), made) == ""


@pytest.mark.parametrize(
    "owner",
    [
        replica_set("other").of_pods(pod().requests(cpu="3")),
        replica_set("web").of_pods(pod().requests(cpu="3")).merge(metadata={"uid": "created-again"}),
        replica_set("web").merge(spec={"replicas": 0}),
        replica_set("web"),
    ],
    ids=["another owner", "another UID", "no replicas", "no template"],
)
def test_without_its_controller_the_pod_is_its_own_replacement(owner: Any) -> None:
    running = app(generation=2).requests(cpu="500m")
    assert replacement(running, owner).spec.requests == {"cpu": 500}


def test_pending_pod_is_not_replaced() -> None:
    waiting = pod("web-1").labels(app="web").owned_by("ReplicaSet", "web").requests(cpu="500m")
    assert replacement(waiting, replica_set("web").of_pods(pod().requests(cpu="3"))).spec.requests == {"cpu": 500}


def of_deployment(name: str, *, generation: int, cpu: str, created: str = "2026-11-20T10:00:00Z") -> Any:
    built = pod(name).on("n1").labels({"app": "web", "pod-template-hash": "5d8f"}).owned_by("ReplicaSet", "web-5d8f")
    return built.requests(cpu=cpu).merge(metadata={"generation": generation, "creationTimestamp": created})


def test_unchanged_pod_shows_what_admission_makes_of_the_template() -> None:
    """Webhooks such as OpenShift's ClusterResourceOverride lower requests at admission."""
    template = replica_set("web-5d8f").of_pods(pod().labels(app="web").requests(cpu="3"))
    running = of_deployment("web-1", generation=1, cpu="200m")
    assert replacement(running, template).spec.requests == {"cpu": 200}


def test_newest_unchanged_pod_of_the_owner_is_the_evidence() -> None:
    template = replica_set("web-5d8f").of_pods(pod().labels(app="web").requests(cpu="3"))
    resized = of_deployment("web-1", generation=4, cpu="1")
    older = of_deployment("web-2", generation=1, cpu="300m", created="2026-11-20T10:05:00Z")
    newer = of_deployment("web-3", generation=1, cpu="400m", created="2026-11-20T10:06:00Z")
    assert replacement(resized, template, older, newer).spec.requests == {"cpu": 400}
    assert replacement(resized, template).spec.requests == {"cpu": 3000}


@pytest.mark.parametrize(("revision", "zone"), [("web-7c", "a"), ("web-9f", "b")], ids=["the present", "an earlier"])
def test_stateful_set_that_updates_on_delete(revision: str, zone: str) -> None:
    """The pod of an earlier revision is replaced by one of the present template, with the same claims."""
    running = (
        app("web-0", "StatefulSet", generation=1)
        .labels({"app": "web", "controller-revision-hash": revision})
        .node_selector({ZONE: "a"})
        .claim("data-web-0")
        .requests(cpu="1")
    )
    owner = stateful_set("web").of_pods(pod().labels(app="web").node_selector({ZONE: "b"}).requests(cpu="2"))
    made = replacement(running, owner.merge(status={"updateRevision": "web-7c"}))
    assert made.spec.node_selector == {ZONE: zone}
    assert [volume.claim for volume in made.spec.volumes] == ["data-web-0"]
    assert made.spec.requests["cpu"] == (1000 if zone == "a" else 2000)


def test_other_fields_are_those_of_the_template_and_of_admission() -> None:
    running = (
        app()
        .node_selector(pool="shared")
        .tolerates("node.kubernetes.io/not-ready", effect="NoExecute", seconds=300)
        .container("proxy", resources={"requests": {"cpu": "100m"}})
        .requests(cpu="1")
        .priority(10, "low")
    )
    template = (
        pod()
        .labels(app="web", tier="front")
        .requests(cpu="1")
        .node_selector({ZONE: "a"})
        .tolerates("dedicated", "web")
        .spread(ZONE)
        .anti_affinity(HOSTNAME)
        .host_port(8080)
        .claim("shared")
        .merge(spec={"priorityClassName": "high", "schedulingGates": [{"name": "example.com/quota"}]})
    )
    made = replacement(running, replica_set("web").of_pods(template), priority_class("high", 1000))
    spec = made.spec
    assert made.labels == {"app": "web", "tier": "front"}
    assert spec.node_selector == {ZONE: "a", "pool": "shared"}
    assert [each.key for each in spec.tolerations] == ["dedicated", "node.kubernetes.io/not-ready"]
    assert spec.requests["cpu"] == 1100
    assert [each.topology_key for each in spec.topology_spread] == [ZONE]
    assert [each.topology_key for each in spec.affinity.anti_required] == [HOSTNAME]
    assert [each.port for each in spec.host_ports] == [8080]
    assert [each.claim for each in spec.volumes] == ["shared"]
    assert spec.scheduling_gates == ("example.com/quota",)
    assert (spec.priority, spec.priority_class_name) == (1000, "high")


def test_label_keys_of_the_template_are_merged_as_the_api_server_does() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": ZONE, "matchLabelKeys": ["tier"]}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    template = pod().labels(app="web", tier="front").merge(spec={"affinity": affinity})
    (found,) = replacement(app(), replica_set("web").of_pods(template)).spec.affinity.anti_required
    assert found.selector is not None
    assert [(each.key, each.operator, each.values) for each in found.selector.match_expressions] == [
        ("tier", "In", ("front",))
    ]


def test_prediction_follows_the_template() -> None:
    running = app(generation=2).requests(cpu="500m").build()
    snapshot = Snapshot([running])
    replacements = Replacements(snapshot)
    assert replacements.of(running).spec.requests == {"cpu": 500}
    snapshot.put(replica_set("web").of_pods(pod().requests(cpu="3")).build())
    assert replacements.of(running).spec.requests == {"cpu": 3000}
    snapshot.put(replica_set("web").of_pods(pod().requests(cpu="2")).build())
    assert replacements.of(running).spec.requests == {"cpu": 2000}


def test_replacement_of_a_replacement_is_itself() -> None:
    running = app(generation=2).requests(cpu="500m").build()
    snapshot = Snapshot([running, replica_set("web").of_pods(pod().requests(cpu="3")).build()])
    replacements = Replacements(snapshot)
    once = snapshot.move(replacements.of(running), "n1")
    assert replacements.of(once).spec == once.spec


def test_moved_pod_is_not_bound_by_name() -> None:
    """The replacement of a pod that a user created on a node is placed by a scheduler."""
    running = app().on("n1").ready()
    running.merge(metadata={"managedFields": [{"fieldsV1": {"f:spec": {"f:nodeName": {}}}}]})
    snapshot = Snapshot([running.build()])
    assert bound_by_name(snapshot.pods[running.build().key])
    assert not bound_by_name(snapshot.move(running.build(), "n2"))


@pytest.mark.parametrize("kind", OWNERS)
def test_template_of_a_controller_without_pods_is_not_read(kind: str) -> None:
    built = OWNERS[kind]("web").of_pods(pod().requests(cpu="3"))
    assert built.build().template is not None
    assert built.merge(spec={"replicas": 0}).build().template is None


def test_replacement_of_a_job_has_the_template_of_the_job() -> None:
    running = app("batch-1", "Job", generation=2).requests(cpu="500m")
    running.merge(metadata={"ownerReferences": []})
    running.owned_by("Job", "batch")
    owner = job("batch").of_pods(pod().requests(cpu="3"))
    assert replacement(running, owner).spec.requests == {"cpu": 3000}
    assert replacement(running, owner.finished()).spec.requests == {"cpu": 500}
    assert replacement(
        running.merge(metadata={"generation": 1}), job("batch").of_pods(pod().requests(cpu="3"))
    ).spec == (running.build().spec)


@pytest.mark.parametrize(
    ("autoscaler", "cpu"),
    [
        (vertical_pod_autoscaler("web"), 500),
        (vertical_pod_autoscaler("web", mode=None), 500),
        (vertical_pod_autoscaler("web", mode="Off"), 3000),
        (vertical_pod_autoscaler("web-5d8f", kind="ReplicaSet"), 500),
        (vertical_pod_autoscaler("web", "blog"), 3000),
        (vertical_pod_autoscaler("web", kind="StatefulSet"), 3000),
        (vertical_pod_autoscaler("other"), 3000),
    ],
    ids=["in place", "no mode", "off", "of the ReplicaSet", "another namespace", "another kind", "another name"],
)
def test_vertical_pod_autoscaler_sets_the_requests_of_replacements(autoscaler: Any, cpu: int) -> None:
    template = replica_set("web-5d8f").of_pods(pod().labels(app="web").requests(cpu="3"))
    resized = of_deployment("web-1", generation=4, cpu="500m")
    assert replacement(resized, template, autoscaler).spec.requests == {"cpu": cpu}


def test_prediction_follows_the_vertical_pod_autoscaler() -> None:
    resized = of_deployment("web-1", generation=4, cpu="500m").build()
    snapshot = Snapshot([resized, replica_set("web-5d8f").of_pods(pod().requests(cpu="3")).build()])
    replacements = Replacements(snapshot)
    assert replacements.of(resized).spec.requests == {"cpu": 3000}
    snapshot.put(vertical_pod_autoscaler("web").build())
    assert replacements.of(resized).spec.requests == {"cpu": 500}


class TestRollouts:
    """While a Deployment rolls out, the pods that last are those of its newest ReplicaSet."""

    def replica_set(self, name: str, cpu: str, revision: str, *, deployment: str = "web", uid: str = "d") -> Any:
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment, "uid": uid, "controller": True}
        labels = {"app": "web", "pod-template-hash": name.rpartition("-")[2]}
        made = replica_set(name).of_pods(pod().labels(labels).requests(cpu=cpu))
        made.annotations({"deployment.kubernetes.io/revision": revision})
        return made.merge(metadata={"ownerReferences": [reference]})

    def running(self) -> Any:
        labels = {"app": "web", "pod-template-hash": "old"}
        made = pod("web-1").on("n1").labels(labels).owned_by("ReplicaSet", "web-old").requests(cpu="1")
        return made.merge(metadata={"generation": 1})

    def test_template_is_that_of_the_newest_replica_set(self) -> None:
        made = replacement(
            self.running(), self.replica_set("web-old", "1", "9"), self.replica_set("web-new", "3", "10")
        )
        assert made.spec.requests["cpu"] == 3000
        assert made.labels["pod-template-hash"] == "new"

    @pytest.mark.parametrize("naming", ["web-old", "web-new"])
    def test_replacement_is_pinned_if_a_template_names_a_node(self, naming: str) -> None:
        sets = [self.replica_set("web-old", "1", "9"), self.replica_set("web-new", "1", "10")]
        for each in sets:
            if each.manifest()["metadata"]["name"] == naming:
                each.merge(spec={"template": {"spec": {"nodeName": "n1"}}})
        made = replacement(self.running(), *sets)
        assert made.node == ""
        assert made.spec == pinned(self.running().build().spec, "n1")
        assert differences(self.running().build(), made) == "nodeName n1"

    def test_rolled_back_replica_set_is_the_newest(self) -> None:
        old, new = self.replica_set("web-old", "1", "3"), self.replica_set("web-new", "3", "2")
        assert replacement(self.running(), old, new).spec.requests["cpu"] == 1000

    def test_pod_of_the_newest_replica_set_shows_what_admission_makes_of_it(self) -> None:
        sample = self.running().labels({"pod-template-hash": "new"}).merge(metadata={"name": "web-2", "uid": "2"})
        sample.merge(metadata={"ownerReferences": []}).owned_by("ReplicaSet", "web-new").requests(cpu="5")
        both = self.replica_set("web-old", "1", "1"), self.replica_set("web-new", "3", "2")
        assert replacement(self.running(), *both, sample).spec.requests["cpu"] == 5000

    @pytest.mark.parametrize(
        "new",
        [{"deployment": "other"}, {"uid": "recreated"}, {"revision": "none"}],
        ids=["another Deployment", "another UID", "no revision"],
    )
    def test_other_replica_sets_do_not_count(self, new: dict[str, str]) -> None:
        old = self.replica_set("web-old", "1", "1")
        other = self.replica_set("web-new", "3", **({"revision": "2"} | new))
        assert replacement(self.running(), old, other).spec.requests["cpu"] == 1000

    def test_newest_replica_set_without_pods_does_not_count(self) -> None:
        new = self.replica_set("web-new", "3", "2").merge(spec={"replicas": 0})
        assert replacement(self.running(), self.replica_set("web-old", "1", "1"), new).spec.requests["cpu"] == 1000
