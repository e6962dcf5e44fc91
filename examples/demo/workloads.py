"""Builds the manifests of the demo's Deployments, whose pods kwok simulates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

IMAGE = "registry.k8s.io/pause:3.10"


def deployment(
    name: str,
    *,
    namespace: str,
    replicas: int = 1,
    cpu: str = "100m",
    memory: str = "64Mi",
    labels: Mapping[str, str] | None = None,
    pod: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a Deployment. ``pod`` is merged into its pod spec."""
    selector = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": {**selector, **(labels or {})}},
                "spec": {**pod_spec(cpu=cpu, memory=memory), **(pod or {})},
            },
        },
    }


def pod_spec(*, cpu: str = "100m", memory: str = "64Mi") -> dict[str, Any]:
    """Return a pod spec with one container with requests."""
    requests = {"cpu": cpu, "memory": memory}
    return {"containers": [{"name": "main", "image": IMAGE, "resources": {"requests": requests}}]}


def required(key: str, values: Sequence[str]) -> dict[str, Any]:
    """Return required node affinity with one expression."""
    expression = {"key": key, "operator": "In", "values": list(values)}
    terms = [{"matchExpressions": [expression]}]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


def avoids(labels: Mapping[str, str]) -> dict[str, Any]:
    """Return required anti-affinity per node to pods with these labels."""
    term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def budget(name: str, *, namespace: str, app: str, min_available: int) -> dict[str, Any]:
    """Return a PodDisruptionBudget."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}},
    }
