"""Services and controllers: by them kube-scheduler spreads pods that don't ask for it. Budgets must not matter."""

from __future__ import annotations

from typing import Any

from tests.builders import PodBuilder, budget
from tests.differential.generator.chance import Chance
from tests.differential.generator.names import APPS, NAMESPACES, TIERS
from tests.differential.server import Manifest

OWNERS = ("ReplicaSet", "StatefulSet", "ReplicationController")


def workloads(chance: Chance) -> list[Manifest]:
    """A few services, controllers and budgets in each namespace."""
    made = []
    for namespace in NAMESPACES:
        for number in range(chance.pick(0, 1, 1, 2)):
            selector = chance.pick({"app": chance.pick(*APPS)}, {"app": "a", "tier": "front"}, {"tier": "back"}, None)
            spec: dict[str, Any] = {"ports": [{"port": 80}]} | ({"selector": selector} if selector else {})
            made.append(_object("v1", "Service", namespace, f"service-{number}", spec))
        made += [_owner(chance, kind, namespace) for kind in OWNERS if chance.one_in(2)]
        if chance.one_in(2):
            made.append(budget("budget", namespace).selecting(app=chance.pick(*APPS)).allowing(0).manifest())
    return made


def own(chance: Chance, made: PodBuilder) -> None:
    """Give the pod an owner, which may not exist, or not select the pod."""
    kind = chance.pick(*OWNERS, "Job")
    made.owned_by(kind, chance.pick(kind.lower(), kind.lower(), "gone"))


def _owner(chance: Chance, kind: str, namespace: str) -> Manifest:
    labels = chance.pick({"app": chance.pick(*APPS)}, {"app": chance.pick(*APPS), "tier": chance.pick(*TIERS)})
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    if kind == "ReplicationController":
        return _object("v1", kind, namespace, kind.lower(), {"replicas": 0, "selector": labels, "template": template})
    selector: dict[str, Any] = {"matchLabels": labels}
    if chance.one_in(3):
        selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": [labels["app"], "c"]}]}
    spec = {"replicas": 0, "selector": selector, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = "service-0"
    return _object("apps/v1", kind, namespace, kind.lower(), spec)


def _object(version: str, kind: str, namespace: str, name: str, spec: dict[str, Any]) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}
