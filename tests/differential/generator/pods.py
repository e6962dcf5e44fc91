"""Pods: with a bit of everything that filters and scores read."""

from __future__ import annotations

from typing import Any

from tests.builders import PodBuilder, pod
from tests.differential.generator.affinity import add_node_rules, add_pod_rules
from tests.differential.generator.chance import Chance
from tests.differential.generator.names import APPS, ASKED_IMAGES, GPU, HIGH, NAMESPACES, RUNTIME, TIERS
from tests.differential.generator.theme import Theme


def random_pod(chance: Chance, name: str, theme: Theme) -> PodBuilder:
    """A pending pod without volumes, spread constraints and owners."""
    made = pod(name, chance.pick(*NAMESPACES)).labels(app=chance.pick(*APPS), tier=chance.pick(*TIERS))
    if chance.one_in(20):
        del made._at("metadata", "labels")["tier"]
    made.image(chance.pick(*ASKED_IMAGES))
    _requests(chance, made)
    if chance.one_in(theme.amounts):
        _uncommon_requests(chance, made)
    if chance.one_in(theme.ports):
        ip, protocol = chance.pick("", "0.0.0.0", "127.0.0.1", "10.0.0.1"), chance.pick("TCP", "TCP", "UDP", "SCTP")
        made.merge(spec={"hostNetwork": chance.one_in(3)})
        made.host_port(chance.pick(8080, 8081), ip=ip, protocol=protocol)
    if chance.one_in(6):
        made.merge(spec={"priorityClassName": HIGH})
    if chance.one_in(theme.nodes):
        add_node_rules(chance, made)
    add_pod_rules(chance, made, required=theme.pods, preferred=theme.wishes)
    return made


def _requests(chance: Chance, made: PodBuilder) -> None:
    if not chance.one_in(4):
        made.cpu(chance.pick("0", "10m", "10m", "300m", "300m", "700m", "1500m", "3"))
    if chance.one_in(2):
        made.memory(chance.pick("64Mi", "300Mi", "1Gi", "3500Mi", "123456789"))


def _uncommon_requests(chance: Chance, made: PodBuilder) -> None:
    if chance.one_in(8):
        made.requests({"ephemeral-storage": chance.pick("1Gi", "6Gi")})
    if chance.one_in(15):
        made.limits({GPU: chance.pick("1", "1", "0")})
    if chance.one_in(30):
        made.requests({"example.com/nobody-has": "1"}).limits({"example.com/nobody-has": "1"})
    if chance.one_in(25):
        made.cpu("100m").limits({"hugepages-2Mi": "64Mi"})
    _further_containers(chance, made)
    if chance.one_in(20):
        requests = chance.pick({"cpu": "7", "memory": "8Gi"}, {"cpu": "7"}, {"memory": "6Gi"})
        made.merge(spec={"resources": {chance.pick("requests", "limits"): requests}})
    if chance.one_in(15):
        made.merge(spec={"runtimeClassName": RUNTIME})


def add_feature(chance: Chance, made: PodBuilder) -> None:
    """Let the pod need a feature that nodes declare."""
    exits = {"operator": "In", "values": [42]}
    rules = [{"action": "RestartAllContainers", "exitCodes": exits}]
    made._main.update(restartPolicy="Never", restartPolicyRules=rules)


def add_gate(chance: Chance, made: PodBuilder) -> None:
    """One in 80 pods is not to be scheduled yet."""
    if chance.one_in(80):
        made.merge(spec={"schedulingGates": [{"name": "example.com/wait"}]})


def resize(chance: Chance, made: PodBuilder) -> None:
    """One in ten pods has other resources than it asks for by now; the kubelet always says why."""
    if not chance.one_in(10):
        return
    held = {"cpu": chance.pick("50m", "2"), "memory": chance.pick("100Mi", "2Gi")}
    status: dict[str, Any] = {"name": "main", "image": "x", "imageID": "x", "ready": True, "restartCount": 0}
    status |= {"resources": {"requests": held}}
    if chance.one_in(2):
        status["allocatedResources"] = chance.pick(held, {**held, "cpu": "700m"})
    made.merge(status={"containerStatuses": [status]})
    kind, reason = chance.pick(("Pending", "Infeasible"), ("Pending", "Deferred"), ("InProgress", ""))
    made.condition(f"PodResize{kind}", "True", reason=reason)


def _further_containers(chance: Chance, made: PodBuilder) -> None:
    if chance.one_in(8):
        resources = chance.pick({}, {"requests": {"cpu": "250m"}}, {"requests": {"memory": "500Mi"}})
        made.container("second", image=chance.pick(*ASKED_IMAGES), resources=resources)
    if chance.one_in(6):
        requests = chance.pick({"cpu": "100m"}, {"cpu": "2500m"}, {"memory": "4Gi"}, {})
        made.init_container("step", image=chance.pick(*ASKED_IMAGES), resources={"requests": requests})
    if chance.one_in(6):
        requests = chance.pick({"cpu": "700m", "memory": "128Mi"}, {})
        made.init_container("side", image="x", restartPolicy="Always", resources={"requests": requests})
        if chance.one_in(5):
            made._manifest["spec"]["initContainers"][-1]["ports"] = [{"containerPort": 8080, "hostPort": 8080}]
        if chance.one_in(2):
            made.init_container("late", image="x", resources={"requests": {"cpu": "1800m"}})
