"""Builds the objects of a scenario with pure functions. The same scenario always gives the same objects."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, to_builtins

from trimtab.kube.errors import InputError
from trimtab.kube.resources import Resource
from trimtab.kube.rules.quantity import format_amount, resource_amount
from trimtab_local.nodes import node
from trimtab_local.scenario import Placement, Scenario, Workload

Manifest = dict[str, Any]

KINDS: Final[Mapping[str, Resource]] = {
    "Deployment": Resource("apps", "v1", "deployments", "Deployment"),
    "ReplicaSet": Resource("apps", "v1", "replicasets", "ReplicaSet"),
    "StatefulSet": Resource("apps", "v1", "statefulsets", "StatefulSet"),
    "DaemonSet": Resource("apps", "v1", "daemonsets", "DaemonSet"),
    "Job": Resource("batch", "v1", "jobs", "Job"),
    "Pod": Resource("", "v1", "pods", "Pod"),
}
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of names that the API server generates. It uses no vowels, so that no words arise."""


class Owner(Struct, frozen=True):
    """An object that owns pods. For bare pods, it is the pod itself."""

    workload: Workload
    namespace: str
    name: str

    @property
    def resource(self) -> Resource:
        """Return the API resource of the object."""
        return KINDS[self.workload.kind]


def node_manifests(scenario: Scenario) -> Iterator[Manifest]:
    """Yield all nodes."""
    for group in scenario.nodes:
        taints = [to_builtins(taint) for taint in group.taints]
        for index, name in enumerate(group.names()):
            manifest = node(
                name,
                zone=group.zones[index % len(group.zones)],
                capacity={key: str(value) for key, value in group.resources().items()},
                labels=group.labels,
                taints=taints,
            )
            if group.unschedulable:
                manifest["spec"]["unschedulable"] = True
            yield manifest


def namespace_manifests(scenario: Scenario) -> Iterator[Manifest]:
    """Yield all namespaces."""
    for group in scenario.namespaces:
        for name in group.names():
            yield {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": dict(group.labels)},
            }


def owners(scenario: Scenario, workload: Workload) -> list[Owner]:
    """Return the owners of a workload, distributed over its namespaces in turn."""
    groups = {group.name: group.names() for group in scenario.namespaces}
    namespaces = groups.get(workload.namespace, [workload.namespace])
    return [
        Owner(workload=workload, namespace=namespaces[index % len(namespaces)], name=name)
        for index, name in enumerate(workload.owner_names())
    ]


def owner_manifest(owner: Owner) -> Manifest:
    """Return the manifest of the owner with its pod template."""
    workload = owner.workload
    resource = owner.resource
    labels, spec = _labels(owner), _pod_spec(owner)
    meta = {"name": owner.name, "namespace": owner.namespace, "labels": {"app": owner.name}}
    manifest: Manifest = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
    pod_meta: Manifest = {"labels": labels}
    if workload.annotations:
        pod_meta["annotations"] = dict(workload.annotations)
    if workload.kind == "Pod":
        return manifest | {"metadata": meta | pod_meta, "spec": spec}
    template = {"metadata": pod_meta, "spec": spec}
    selector = {"matchLabels": {"app": owner.name}}
    if workload.kind == "Job":
        template["spec"] = {"restartPolicy": "Never", **spec}
        return manifest | {
            "spec": {"parallelism": workload.replicas, "completions": workload.replicas, "template": template}
        }
    body: Manifest = {"selector": selector, "template": template}
    if workload.kind != "DaemonSet":
        body["replicas"] = workload.replicas
    if workload.kind == "StatefulSet":
        body |= {"serviceName": owner.name, "podManagementPolicy": "Parallel"}
    return manifest | {"spec": body}


def budget_manifest(owner: Owner) -> Manifest | None:
    """Return the owner's PodDisruptionBudget, or ``None`` if its workload has none."""
    budget = owner.workload.budget
    if budget is None:
        return None
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": owner.name, "namespace": owner.namespace},
        "spec": {"selector": {"matchLabels": {"app": owner.name}}, **to_builtins(budget)},
    }


def pod_manifest(owner: Owner, number: int, *, uid: str, node_name: str) -> Manifest:
    """Return the ``number``-th pod of an owner.

    Args:
        owner: a ReplicaSet, or the bare pod itself.
        number: the index from 0. The same number always has the same name, so that a load can be continued.
        uid: UID of the ReplicaSet. The garbage collector deletes pods whose owner does not exist.
        node_name: the pod's node.
    """
    meta: Manifest = {"namespace": owner.namespace, "labels": _labels(owner)}
    if owner.workload.annotations:
        meta["annotations"] = dict(owner.workload.annotations)
    if owner.workload.kind == "Pod":
        meta["name"] = owner.name
    else:
        reference = {
            "apiVersion": owner.resource.api_version,
            "kind": owner.resource.kind,
            "name": owner.name,
            "uid": uid,
        }
        meta["name"] = pod_name(owner, number)
        meta["ownerReferences"] = [{**reference, "controller": True, "blockOwnerDeletion": True}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": _pod_spec(owner) | {"nodeName": node_name}}


def pod_name(owner: Owner, number: int) -> str:
    """Return the name of the ``number``-th pod of an owner."""
    return f"{owner.name}-{suffix(number)}"


def suffix(number: int) -> str:
    """Return a suffix of five letters like those that the API server generates, unique for numbers below 27**5."""
    # A multiplier prime to 27**5 only shuffles: neighbours look unlike each other, and none meets another.
    value = (number * 5_237_911 + 1_234_567) % len(_LETTERS) ** 5
    digits = []
    for _ in range(5):
        value, digit = divmod(value, len(_LETTERS))
        digits.append(_LETTERS[digit])
    return "".join(digits)


def _labels(owner: Owner) -> dict[str, str]:
    return {"app": owner.name, **owner.workload.labels}


def _pod_spec(owner: Owner) -> Manifest:
    workload = owner.workload
    container: Manifest = {"name": "main", "image": workload.image}
    resources = {
        key: {name: str(amount) for name, amount in amounts.items()}
        for key, amounts in (("requests", workload.requests), ("limits", workload.limits))
        if amounts
    }
    if resources:
        container["resources"] = resources
    # Nothing in these pods talks to the API server; without the mount an object is a third smaller.
    spec = {"automountServiceAccountToken": False, "containers": [container], **workload.pod_spec}
    filled = _fill(spec, owner.name)
    assert isinstance(filled, dict)
    return filled


def _fill(value: Any, owner: str) -> Any:
    """Return a copy in which ``{owner}`` is replaced by the owner's name."""
    if isinstance(value, str):
        return value.replace("{owner}", owner)
    if isinstance(value, Mapping):
        return {key: _fill(item, owner) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, owner) for item in value]
    return value


def placements(scenario: Scenario) -> list[list[str]]:
    """Return the node of each pod of each workload with ``via: direct``, and an empty list for other workloads.

    The number of pods per node follows the weights exactly. The pods are then shuffled with the seed.

    Raises:
        InputError: the pods on a node would exceed its capacity.
    """
    used: Counter[tuple[str, str]] = Counter()
    found = []
    for index, workload in enumerate(scenario.workloads):
        slots: list[str] = []
        if workload.via == "direct":
            placement = workload.placement or Placement()
            slots = _slots(scenario, workload.pod_count, placement)
            for node_name, count in Counter(slots).items():
                used[node_name, "pods"] += count
                for resource, amount in workload.requests.items():
                    used[node_name, resource] += resource_amount(resource, amount) * count
            _check_room(scenario, used, path=f"workloads[{index}]")
            random.Random(placement.seed).shuffle(slots)
        found.append(slots)
    return found


def _slots(scenario: Scenario, pods: int, placement: Placement) -> list[str]:
    """Return the name of each node once per pod that it gets."""
    chosen = [group for group in scenario.nodes if not placement.node_groups or group.prefix in placement.node_groups]
    names = [name for group in chosen for name in group.names()]
    heavy = round(len(names) * placement.heavy_share)
    weights = [placement.heavy_factor] * heavy + [1.0] * (len(names) - heavy)
    counts = _shares(pods, weights)
    return [name for name, count in zip(names, counts, strict=True) for _ in range(count)]


def _shares(total: int, weights: Sequence[float]) -> list[int]:
    """Return integers with the given sum in proportion to the weights.

    The cumulative sums are rounded, not each share.
    """
    whole = sum(weights)
    shares, before, passed = [], 0, 0.0
    for weight in weights:
        passed += weight
        boundary = round(total * passed / whole) if whole else 0
        shares.append(boundary - before)
        before = boundary
    return shares


def _check_room(scenario: Scenario, used: Mapping[tuple[str, str], int], *, path: str) -> None:
    room = {name: group for group in scenario.nodes for name in group.names()}
    for (node_name, resource), amount in used.items():
        has = resource_amount(resource, room[node_name].resources().get(resource, 0))
        if amount > has:
            raise InputError(
                f"{node_name} would hold {format_amount(resource, amount)} of {resource}, "
                f"and has {format_amount(resource, has)}; give it less, or more or bigger nodes",
                field=path,
            )
