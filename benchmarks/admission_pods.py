"""The pods that ``benchmarks/admission.py`` creates: alike, of many templates, or all different.

    ALIKE       load1-a0-@n                   each pod is from the same small template
    TEMPLATES   load1-t0-@n, load1-t37-@n, …  from 1,000 templates, of which some are used far more often than others
    DIFFERENT   load1-d0-@n, load1-d37-@n, …  from the same templates, but each pod has an image of its own

The templates differ in what the rules read: containers, images, node selectors, affinity, tolerations and extended
resources. The rules of the benchmark admit all of them. The load replaces ``@n`` by the number of the pod.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

ALIKE: Final = "alike"
TEMPLATES: Final = "templates"
DIFFERENT: Final = "different"
KINDS: Final = (ALIKE, TEMPLATES, DIFFERENT)

NUMBER: Final = 1000
"""Number of templates: more than a webhook's cache of reviews has entries."""
SEED: Final = 34

_GPU: Final = "example.com/gpu"
_ZONE: Final = "topology.kubernetes.io/zone"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def each_once(kind: str, load: int, fields: Mapping[str, Any]) -> list[msgspec.Raw]:
    """Return a pod of each template.

    Args:
        kind: one of :data:`KINDS`.
        load: number of the load, which makes names and images unique.
        fields: additional fields of the pods' specs.
    """
    pods = (
        {
            "metadata": {"name": f"load{load}-{kind[0]}{index}-@n", **metadata},
            "spec": {**spec, **fields},
        }
        for index, (metadata, spec) in enumerate(_templates(kind, load))
    )
    return [msgspec.Raw(msgspec.json.encode(each)) for each in pods]


def drawn(kind: str, load: int, fields: Mapping[str, Any], number: int) -> list[msgspec.Raw]:
    """Return some pods. The template at position k is used with a probability proportional to 1/k (Zipf's law)."""
    pods = each_once(kind, load, fields)
    weights = [1.0 / position for position in range(1, len(pods) + 1)]
    return random.Random(SEED).choices(pods, weights, k=number)


def template(name: str) -> str:
    """Return the template of a pod by its name."""
    return name.split("-")[1]


def _templates(kind: str, load: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the metadata without the name, and the spec, of each template."""
    if kind == ALIKE:
        requests = {"cpu": "100m", "memory": "64Mi"}
        container = {"name": "main", "image": "none", "resources": {"requests": requests}}
        yield {"labels": {"app": "web"}}, {"containers": [container]}
        return
    tag = f"{load}.@n" if kind == DIFFERENT else "1.0"
    for index in range(NUMBER):
        labels = {"app.kubernetes.io/name": f"app-{index}", "app.kubernetes.io/part-of": f"team-{index % 40}"}
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"app-{index}", "uid": f"uid-{index}"}
        yield {"labels": labels, "ownerReferences": [owner | {"controller": True}]}, _spec(index, tag, labels)


def _spec(index: int, tag: str, labels: Mapping[str, str]) -> dict[str, Any]:
    requests = {"cpu": f"{100 + index % 9 * 50}m", "memory": f"{64 + index % 7 * 64}Mi"}
    limits = {_GPU: 1} if index % 20 == 7 else {"memory": "1Gi"}
    image = f"registry.example.com/team-{index % 40}/app-{index}:{tag}"
    environment = [{"name": "LOG_LEVEL", "value": "info"}, {"name": "PORT", "value": "8080"}]
    resources = {"requests": requests, "limits": limits}
    main = {"name": f"app-{index}", "image": image, "resources": resources, "env": environment}
    sidecar = {"name": "proxy", "image": f"registry.example.com/proxy:{index % 4}"}
    spec: dict[str, Any] = {"containers": [main, sidecar] if index % 2 else [main]}
    if index % 3 == 0:
        spec["initContainers"] = [{"name": "migrate", "image": image}]
    if index % 4 == 1:
        spec["nodeSelector"] = {_ZONE: f"zone-{index % 3}"} if index % 8 == 1 else {"pool": "general"}
    if index % 5 == 2:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Equal", "value": "load", "effect": "NoSchedule"}]
    affinity: dict[str, Any] = {}
    if index % 6 == 3:
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
        affinity["podAntiAffinity"] = {_PREFERRED: [{"weight": 1, "podAffinityTerm": term}]}
    if index % 10 == 4:
        requirement = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
        affinity["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}
    if affinity:
        spec["affinity"] = affinity
    if index % 7 == 5:
        spread = {"maxSkew": 1, "topologyKey": _ZONE, "whenUnsatisfiable": "ScheduleAnyway"}
        spec["topologySpreadConstraints"] = [spread | {"labelSelector": {"matchLabels": labels}}]
    return spec
