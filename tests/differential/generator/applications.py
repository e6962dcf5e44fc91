"""Small clusters of applications from which nodes can be removed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

from tests.builders import HOSTNAME, ZONE, PodBuilder, expression, node, pod, replica_set, selector, stateful_set
from tests.differential.api_client import Manifest
from tests.differential.generator.claims import BOUND, CLAIM_UID, claim, claim_spec
from tests.differential.generator.names import NAMESPACES, TEAMS
from tests.differential.generator.rng import RandomSource
from tests.differential.generator.volumes import OWNER_UID

NAMESPACE: Final = NAMESPACES[0]
RULES: Final = ("hard spread", "soft spread", "anti-affinity", "affinity", "nodes", "port", "volumes")
"""What an application may ask of the places of its pods."""

_NAMES: Final = ("a", "b", "c", "d", "e")


class Applications:
    """The nodes of a random cluster, and the applications that run on them.

    The pods of an application are equal, except for their volumes. kube-scheduler places them, so their rules hold at
    first. Some pods are then deleted, because an application became smaller, so nodes can be removed.

    Args:
        seed: determines everything.

    Attributes:
        zones: the zone of each node, by name.
        objects: the nodes, the owners of the pods, their claims and volumes.
        pods: the pods in the order of their creation, without nodes.
        fixed: names of the nodes that belong to no node group.
        leaving: names of the pods that are deleted after all have been placed.
        rules_of: the rules of each application, of :data:`RULES`, by its name.
    """

    def __init__(self, seed: int) -> None:
        rng = RandomSource(seed)
        self.objects: list[Manifest] = []
        self.pods: list[Manifest] = []
        self.rules_of: dict[str, list[str]] = {}
        for name in NAMESPACES:
            labels = {"kubernetes.io/metadata.name": name} | TEAMS[name]
            metadata = {"name": name, "labels": labels}
            self.objects.append({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        zones = ("a", "b", "c")[: rng.number(2, 3)]
        self.zones = {f"n{number}": rng.pick(*zones) for number in range(rng.number(4, 9))}
        for name, zone in self.zones.items():
            made = node(name).zone(zone).labels(disk=rng.pick("ssd", "ssd", "hdd"))
            if rng.one_in(6):
                made.taint("t", "v")
            self.objects.append(made.manifest())
        self.fixed = frozenset(name for name in self.zones if rng.one_in(5))
        for name in _NAMES[: rng.number(3, len(_NAMES))]:
            self._add_application(rng.fork(), name)
        names = [each["metadata"]["name"] for each in self.pods]
        self.leaving = frozenset(rng.sample(names, len(names) * rng.number(2, 5) // 10))

    def node(self, name: str) -> Manifest:
        """Return the manifest of a node."""
        return next(each for each in self.objects if each["kind"] == "Node" and each["metadata"]["name"] == name)

    def _add_application(self, rng: RandomSource, name: str) -> None:
        template = pod(name, NAMESPACE).labels(app=name)
        template.cpu(rng.pick("100m", "250m", "500m", "1"))
        if rng.one_in(2):
            template.memory(rng.pick("100Mi", "1Gi", "3Gi"))
        if rng.one_in(3):
            template.tolerates("t")
        chosen = rng.sample(RULES, rng.pick(0, 1, 1, 2, 2, 3))
        self.rules_of[name] = chosen or ["no rule"]
        for rule in chosen:
            _ADD.get(rule, _add_nothing)(rng, template)
        stateful = "volumes" in chosen
        owner = (stateful_set if stateful else replica_set)(name, NAMESPACE).selecting(app=name).of_pods(template)
        replicas = rng.number(2, 9)
        owner.merge(spec={"replicas": replicas} | ({"serviceName": name} if stateful else {}))
        self.objects.append(owner.manifest())
        for number in range(replicas):
            built = copy.deepcopy(template).owned_by(owner.manifest()["kind"], name, uid=OWNER_UID)
            made = built.manifest()
            made["metadata"]["name"] = f"{name}-{number}"
            if stateful:
                self._add_volume(rng, made)
            self.pods.append(made)

    def _add_volume(self, rng: RandomSource, made: Manifest) -> None:
        """Give the pod a claim that is bound to a volume of one zone or, rarely, of one node."""
        name = f"data-{made['metadata']['name']}"
        bound = claim(name, NAMESPACE, {**claim_spec("", "1Gi"), "volumeName": name})
        bound["metadata"]["annotations"] = {BOUND: "yes"}
        bound["status"] = {"phase": "Bound"}
        place = expression(ZONE, "In", rng.pick(*sorted(set(self.zones.values()))))
        if rng.one_in(6):
            place = expression(HOSTNAME, "In", rng.pick(*self.zones))
        spec: dict[str, Any] = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "csi.example.com", "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [place]}]}},
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": name, "uid": CLAIM_UID},
        }
        volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
        self.objects += [bound, {**volume, "status": {"phase": "Bound"}}]
        made["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


def _add_nothing(_rng: RandomSource, _made: PodBuilder) -> None:
    """Volumes differ from pod to pod."""


def _add_hard_spread(rng: RandomSource, made: PodBuilder) -> None:
    fields = _policies(rng)
    if rng.one_in(4):
        fields["minDomains"] = rng.number(1, 3)
    made.spread(rng.pick(ZONE, ZONE, HOSTNAME), max_skew=rng.pick(1, 1, 2), **fields)


def _add_soft_spread(rng: RandomSource, made: PodBuilder) -> None:
    made.spread(rng.pick(ZONE, HOSTNAME, "disk"), when="ScheduleAnyway", **_policies(rng))


def _policies(rng: RandomSource) -> dict[str, Any]:
    fields = {
        "nodeTaintsPolicy": rng.pick("", "Honor", "Ignore"),
        "nodeAffinityPolicy": rng.pick("", "Honor", "Ignore"),
    }
    return {name: value for name, value in fields.items() if value}


def _add_anti_affinity(rng: RandomSource, made: PodBuilder) -> None:
    made.anti_affinity(rng.pick(HOSTNAME, HOSTNAME, ZONE), **_some_selector(rng))
    if rng.one_in(3):
        made.anti_affinity(ZONE, preferred=50)


def _add_affinity(rng: RandomSource, made: PodBuilder) -> None:
    made.affinity(rng.pick(HOSTNAME, ZONE, ZONE), **_some_selector(rng))


def _some_selector(rng: RandomSource) -> dict[str, Any]:
    """Return a selector of another application's pods, or nothing: the application's own."""
    return {"labelSelector": selector(app=rng.pick(*_NAMES))} if rng.one_in(3) else {}


def _add_node_rules(rng: RandomSource, made: PodBuilder) -> None:
    if rng.one_in(2):
        made.node_selector(disk="ssd")
    else:
        made.node_affinity(expression(ZONE, "In", "a", "b"))


def _add_port(_rng: RandomSource, made: PodBuilder) -> None:
    made.host_port(8080)


_ADD: Final[dict[str, Callable[[RandomSource, PodBuilder], None]]] = {
    "hard spread": _add_hard_spread,
    "soft spread": _add_soft_spread,
    "anti-affinity": _add_anti_affinity,
    "affinity": _add_affinity,
    "nodes": _add_node_rules,
    "port": _add_port,
}
