"""Pods with values for all fields that filters and scores read."""

from __future__ import annotations

from typing import Any

from tests.builders import PodBuilder, pod
from tests.differential.generator.affinity import add_node_rules, add_pod_rules
from tests.differential.generator.feature_mix import FeatureMix
from tests.differential.generator.names import APPS, GPU, HIGH, NAMESPACES, POD_IMAGES, RUNTIME, TIERS
from tests.differential.generator.rng import RandomSource


def random_pod(rng: RandomSource, name: str, mix: FeatureMix) -> PodBuilder:
    """Generate a pending pod without volumes, spread constraints and owners."""
    made = pod(name, rng.pick(*NAMESPACES)).labels(app=rng.pick(*APPS), tier=rng.pick(*TIERS))
    if rng.one_in(20):
        del made._at("metadata", "labels")["tier"]
    made.image(rng.pick(*POD_IMAGES))
    _requests(rng, made)
    if rng.one_in(mix.uncommon_requests):
        _uncommon_requests(rng, made)
    if rng.one_in(mix.host_ports):
        ip, protocol = rng.pick("", "0.0.0.0", "127.0.0.1", "10.0.0.1"), rng.pick("TCP", "TCP", "UDP", "SCTP")
        made.merge(spec={"hostNetwork": rng.one_in(3)})
        made.host_port(rng.pick(8080, 8081), ip=ip, protocol=protocol)
    if rng.one_in(6):
        made.merge(spec={"priorityClassName": HIGH})
    if rng.one_in(mix.node_affinity):
        add_node_rules(rng, made)
    add_pod_rules(rng, made, required=mix.pod_affinity, preferred=mix.preferred_pod_affinity)
    return made


def _requests(rng: RandomSource, made: PodBuilder) -> None:
    if not rng.one_in(4):
        made.cpu(rng.pick("0", "10m", "10m", "300m", "300m", "700m", "1500m", "3"))
    if rng.one_in(2):
        made.memory(rng.pick("64Mi", "300Mi", "1Gi", "3500Mi", "123456789"))


def _uncommon_requests(rng: RandomSource, made: PodBuilder) -> None:
    if rng.one_in(8):
        made.requests({"ephemeral-storage": rng.pick("1Gi", "6Gi")})
    if rng.one_in(15):
        made.limits({GPU: rng.pick("1", "1", "0")})
    if rng.one_in(30):
        made.requests({"example.com/on-no-node": "1"}).limits({"example.com/on-no-node": "1"})
    if rng.one_in(25):
        made.cpu("100m").limits({"hugepages-2Mi": "64Mi"})
    _further_containers(rng, made)
    if rng.one_in(20):
        requests = rng.pick({"cpu": "7", "memory": "8Gi"}, {"cpu": "7"}, {"memory": "6Gi"})
        made.merge(spec={"resources": {rng.pick("requests", "limits"): requests}})
    if rng.one_in(15):
        made.merge(spec={"runtimeClassName": RUNTIME})


def add_feature(rng: RandomSource, made: PodBuilder) -> None:
    """Require a feature that nodes declare."""
    exits = {"operator": "In", "values": [42]}
    rules = [{"action": "RestartAllContainers", "exitCodes": exits}]
    made._main.update(restartPolicy="Never", restartPolicyRules=rules)


def add_gate(rng: RandomSource, made: PodBuilder) -> None:
    """Give one in 80 pods a scheduling gate."""
    if rng.one_in(80):
        made.merge(spec={"schedulingGates": [{"name": "example.com/wait"}]})


def add_resize(rng: RandomSource, made: PodBuilder) -> None:
    """Give one in ten pods a pending resize, with the condition that the kubelet sets."""
    if not rng.one_in(10):
        return
    held = {"cpu": rng.pick("50m", "2"), "memory": rng.pick("100Mi", "2Gi")}
    status: dict[str, Any] = {"name": "main", "image": "x", "imageID": "x", "ready": True, "restartCount": 0}
    status |= {"resources": {"requests": held}}
    if rng.one_in(2):
        status["allocatedResources"] = rng.pick(held, {**held, "cpu": "700m"})
    made.merge(status={"containerStatuses": [status]})
    kind, reason = rng.pick(("Pending", "Infeasible"), ("Pending", "Deferred"), ("InProgress", ""))
    made.condition(f"PodResize{kind}", "True", reason=reason)


def _further_containers(rng: RandomSource, made: PodBuilder) -> None:
    if rng.one_in(8):
        resources = rng.pick({}, {"requests": {"cpu": "250m"}}, {"requests": {"memory": "500Mi"}})
        made.container("second", image=rng.pick(*POD_IMAGES), resources=resources)
    if rng.one_in(6):
        requests = rng.pick({"cpu": "100m"}, {"cpu": "2500m"}, {"memory": "4Gi"}, {})
        made.init_container("step", image=rng.pick(*POD_IMAGES), resources={"requests": requests})
    if rng.one_in(6):
        requests = rng.pick({"cpu": "700m", "memory": "128Mi"}, {})
        made.init_container("side", image="x", restartPolicy="Always", resources={"requests": requests})
        if rng.one_in(5):
            made._manifest["spec"]["initContainers"][-1]["ports"] = [{"containerPort": 8080, "hostPort": 8080}]
        if rng.one_in(2):
            made.init_container("late", image="x", resources={"requests": {"cpu": "1800m"}})
