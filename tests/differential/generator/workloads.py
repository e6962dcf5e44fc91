"""Services and workloads, by which kube-scheduler spreads pods without constraints, and PodDisruptionBudgets."""

from __future__ import annotations

from typing import Any

from tests.builders import PodBuilder, budget
from tests.differential.api_client import Manifest
from tests.differential.generator.names import APPS, NAMESPACES, TIERS
from tests.differential.generator.rng import RandomSource

OWNERS = ("ReplicaSet", "StatefulSet", "ReplicationController")


def workloads(rng: RandomSource) -> list[Manifest]:
    """Generate Services, workloads and PodDisruptionBudgets in each namespace."""
    made = []
    for namespace in NAMESPACES:
        for number in range(rng.pick(0, 1, 1, 2)):
            selector = rng.pick({"app": rng.pick(*APPS)}, {"app": "a", "tier": "front"}, {"tier": "back"}, None)
            spec: dict[str, Any] = {"ports": [{"port": 80}]} | ({"selector": selector} if selector else {})
            made.append(_object("v1", "Service", namespace, f"service-{number}", spec))
        made += [_owner(rng, kind, namespace) for kind in OWNERS if rng.one_in(2)]
        if rng.one_in(2):
            made.append(budget("budget", namespace).selecting(app=rng.pick(*APPS)).allowing(0).manifest())
    return made


def add_owner(rng: RandomSource, made: PodBuilder) -> None:
    """Add an owner reference; the owner may be missing or may not select the pod."""
    kind = rng.pick(*OWNERS, "Job")
    made.owned_by(kind, rng.pick(kind.lower(), kind.lower(), "gone"))


def _owner(rng: RandomSource, kind: str, namespace: str) -> Manifest:
    labels = rng.pick({"app": rng.pick(*APPS)}, {"app": rng.pick(*APPS), "tier": rng.pick(*TIERS)})
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    if kind == "ReplicationController":
        return _object("v1", kind, namespace, kind.lower(), {"replicas": 0, "selector": labels, "template": template})
    selector: dict[str, Any] = {"matchLabels": labels}
    if rng.one_in(3):
        selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": [labels["app"], "c"]}]}
    spec = {"replicas": 0, "selector": selector, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = "service-0"
    return _object("apps/v1", kind, namespace, kind.lower(), spec)


def _object(version: str, kind: str, namespace: str, name: str, spec: dict[str, Any]) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}
