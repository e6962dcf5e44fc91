"""From a scenario to the objects that it stands for; pure, and the same for the same scenario."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, to_builtins

from trimtab.kube.errors import InputError
from trimtab.kube.resources import Resource
from trimtab.kube.rules.quantity import format_amount, resource_amount
from trimtab.local.nodes import node
from trimtab.local.scenario import Placement, Scenario, Workload

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
"""What the API server makes generated names of: no vowels, so no words."""


class Owner(Struct, frozen=True):
    """One object that owns pods; for bare pods, the pod itself."""

    workload: Workload
    namespace: str
    name: str

    @property
    def resource(self) -> Resource:
        """Where it lives in the API."""
        return KINDS[self.workload.kind]


def node_manifests(scenario: Scenario) -> Iterator[Manifest]:
    """Every node."""
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
    """Every namespace."""
    for group in scenario.namespaces:
        for name in group.names():
            yield {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": dict(group.labels)},
            }


def owners(scenario: Scenario, workload: Workload) -> list[Owner]:
    """The owners of a workload, in its namespaces in turn."""
    groups = {group.name: group.names() for group in scenario.namespaces}
    namespaces = groups.get(workload.namespace, [workload.namespace])
    return [
        Owner(workload=workload, namespace=namespaces[index % len(namespaces)], name=name)
        for index, name in enumerate(workload.owner_names())
    ]


def owner_manifest(owner: Owner) -> Manifest:
    """The owner with its pod template."""
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
    """The owner's PodDisruptionBudget, where its workload has one."""
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
    """The ``number``-th pod of an owner, on its node.

    Args:
        owner: a ReplicaSet, or the bare pod itself.
        number: from 0; the same number has the same name, so that a load can be taken up again.
        uid: of the ReplicaSet: the garbage collector deletes pods whose owner does not exist.
        node_name: where it runs.
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
    """The name of the ``number``-th pod of an owner."""
    return f"{owner.name}-{suffix(number)}"


def suffix(number: int) -> str:
    """Five letters as the API server generates them, another for each number below 27**5."""
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
    """A copy in which ``{owner}`` is the owner's name."""
    if isinstance(value, str):
        return value.replace("{owner}", owner)
    if isinstance(value, Mapping):
        return {key: _fill(item, owner) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, owner) for item in value]
    return value


def placements(scenario: Scenario) -> list[list[str]]:
    """For each workload that is created directly a node for each of its pods; for others an empty list.

    Pods are counted out exactly by the weights, then shuffled by the seed.

    Raises:
        InputError: a node would hold more pods, or more of a requested resource, than it takes.
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
    """Each node's name as often as it gets a pod."""
    chosen = [group for group in scenario.nodes if not placement.node_groups or group.prefix in placement.node_groups]
    names = [name for group in chosen for name in group.names()]
    heavy = round(len(names) * placement.heavy_share)
    weights = [placement.heavy_factor] * heavy + [1.0] * (len(names) - heavy)
    counts = _shares(pods, weights)
    return [name for name, count in zip(names, counts, strict=True) for _ in range(count)]


def _shares(total: int, weights: Sequence[float]) -> list[int]:
    """Whole numbers with that sum, as near to the weights as can be: each boundary is rounded, not each share."""
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
