"""Estimates templates of groups without a sample node, from capacity annotations or from an external provider."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.autoscaling.groups.annotations import CAPACITY, RESERVED
from trimtab.autoscaling.groups.node_group import NodeGroup, ObjectProblem
from trimtab.autoscaling.template.node_template import (
    NodeTemplate,
    TemplateOrigin,
    allocatable,
    lasting_taints,
    reserve,
    template_name,
    with_taints,
)
from trimtab.kube.frozen import NO_LABELS, Labels, ResourceList
from trimtab.kube.objects import CSINode, Node, NodeCondition, NodeDriver, Taint
from trimtab.kube.objects.machine import MACHINE_API
from trimtab.kube.rules.node_labels import HOSTNAME
from trimtab.kube.rules.quantity import QuantityError, format_amount, resource_amount
from trimtab.kube.rules.selectors import is_label_key, is_label_value

NVIDIA: Final = "nvidia.com/gpu"
MAX_PODS: Final = 110
"""Default of the kubelet's ``maxPods``, as in upstream."""

OS_LABEL: Final = "kubernetes.io/os"
ARCH_LABEL: Final = "kubernetes.io/arch"
_CONTROL_PLANE: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""Labels of the nodes of the control plane."""

READY: Final = (NodeCondition(type="Ready", status="True"),)

_DEPRECATED: Final = {"cpu": "vCPU", "memory": "memoryMb", "gpu-count": "GPU", "maxPods": "maxPods"}
"""OpenShift's older annotation keys under its own prefix. Upstream's keys take precedence. ``memoryMb`` is in MiB."""

_COUNT: Final = re.compile(r"[0-9]{1,9}")
_TAINT: Final = re.compile(r"(?P<key>[^=:]+)(?:=(?P<value>[^=:]*))?:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute)")


class _AnnotationReader(Struct):
    """Reads a group's annotations and collects the invalid ones."""

    group: NodeGroup
    wrong: list[ObjectProblem]

    def text(self, name: str) -> tuple[str, str]:
        """Return the key and the value of a capacity annotation. Both are empty if it is missing."""
        annotations = self.group.template.annotations
        keys = [CAPACITY + name]
        if self.group.api_version.startswith(MACHINE_API) and name in _DEPRECATED:
            keys.append(f"{MACHINE_API}/{_DEPRECATED[name]}")
        return next(((key, annotations[key]) for key in keys if annotations.get(key)), ("", ""))

    def amount(self, name: str, resource: str) -> int | None:
        """Return the quantity in a capacity annotation, or ``None`` if it is missing or invalid."""
        key, text = self.text(name)
        if not key:
            return None
        mebibytes = key.endswith("/memoryMb")
        if mebibytes and not _COUNT.fullmatch(text):
            self.blame(key, f"must be a whole number of MiB, not {text!r}")
            return None
        try:
            found = resource_amount(resource, f"{text}Mi" if mebibytes else text)
        except QuantityError as error:
            self.blame(key, str(error))
            return None
        if found < 0:
            self.blame(key, f"must not be negative: {text}")
            return None
        return found

    def count(self, name: str) -> int | None:
        """Return the integer in a capacity annotation, or ``None`` if it is missing or invalid."""
        key, text = self.text(name)
        if key and not _COUNT.fullmatch(text):
            self.blame(key, f"must be a whole number, not {text!r}")
            return None
        return int(text) if key else None

    def parts(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield the items of a comma-separated capacity annotation, each with the annotation's key."""
        key, text = self.text(name)
        yield from ((key, part.strip()) for part in text.split(",") if part.strip())

    def blame(self, key: str, what: str) -> None:
        """Add a problem for an annotation that is ignored because it is invalid."""
        group = self.group
        message = f"annotation {key} {what}"
        self.wrong.append(ObjectProblem(group.kind, group.namespace, group.name, reasons.INVALID_ANNOTATION, message))


class PlatformDefault(Struct, frozen=True):
    """What is assumed of a node label of the operating system or architecture that nothing sets.

    Attributes:
        value: the value; ``""`` if nothing is assumed.
        why: where it comes from, or why nothing is assumed.
    """

    value: str
    why: str

    def describe(self, label: str) -> str:
        """Return the assumption as text for the plan."""
        return f"{label} is {self.value}: {self.why}" if self.value else f"{label} is unknown: {self.why}"


class ClusterDefaults(Struct, frozen=True):
    """What is assumed of a new node if its group does not state it: what the nodes of the cluster have.

    Attributes:
        platform: the operating system and the architecture, by label.
        max_pods: the number of pods that a node accepts.
        max_pods_why: where it comes from.
        reserved: the amounts of cpu and memory that each node reserves, whatever its size, by resource.
        least_reserved: the amounts that the nodes reserve, of resources of which all nodes have the same capacity. A
            larger node may reserve more.
    """

    platform: Mapping[str, PlatformDefault] = {}
    max_pods: int = MAX_PODS
    max_pods_why: str = "the kubelet's default"
    reserved: Mapping[str, int] = {}
    least_reserved: Mapping[str, int] = {}

    def reserve(self, capacity: ResourceList) -> ResourceList:
        """Return the estimated part of the capacity that is not allocatable."""
        found = dict(reserve(capacity))
        for name, amount in self.least_reserved.items():
            found[name] = max(amount, found.get(name, 0))
        found |= self.reserved
        return ResourceList({name: min(amount, capacity.get(name, 0)) for name, amount in found.items()})


def cluster_defaults(nodes: Iterable[Node], *, architecture: str | None = None) -> ClusterDefaults:
    """Return what is assumed of a new node if its group does not state it.

    The operating system and the architecture are those of all nodes of the cluster, or else those of its control plane.
    If these differ too, nothing is assumed. (cluster-autoscaler assumes amd64; kubernetes/autoscaler#6064.) What
    depends on the kubelet's configuration is that of all nodes outside the control plane, if they agree.

    Args:
        nodes: all nodes of the cluster.
        architecture: ``spec.scaleUp.defaultArchitecture``, which takes precedence over what the nodes have.
    """
    everything = list(nodes)
    control_plane = [node for node in everything if any(role in node.labels for role in _CONTROL_PLANE)]
    names = {node.name for node in control_plane}
    workers = [node for node in everything if node.name not in names and node.capacity and node.allocatable]
    platform = {label: _platform_default(label, everything, control_plane) for label in (OS_LABEL, ARCH_LABEL)}
    if architecture:
        platform[ARCH_LABEL] = PlatformDefault(architecture, "spec.scaleUp.defaultArchitecture")
    found = ClusterDefaults(platform)
    accepted = {node.allocatable.get("pods", 0) for node in workers}
    if len(accepted) == 1 and 0 not in accepted:
        found = replace(found, max_pods=accepted.pop(), max_pods_why="the other nodes of the cluster have it")
    reserved: dict[str, int] = {}
    least: dict[str, int] = {}
    for name in ("cpu", "memory"):
        sizes = {node.capacity.get(name, 0) for node in workers}
        amounts = {node.capacity.get(name, 0) - node.allocatable.get(name, 0) for node in workers}
        if len(amounts) == 1:
            (reserved if len(sizes) > 1 else least)[name] = max(0, amounts.pop())
    return replace(found, reserved=reserved, least_reserved=least)


def _platform_default(label: str, nodes: Iterable[Node], control_plane: Iterable[Node]) -> PlatformDefault:
    values = sorted({node.labels[label] for node in nodes if node.labels.get(label)})
    if len(values) == 1:
        return PlatformDefault(values[0], "all nodes of the cluster have it")
    of_control_plane = {node.labels[label] for node in control_plane if node.labels.get(label)}
    if len(of_control_plane) == 1:
        return PlatformDefault(
            of_control_plane.pop(), f"the control plane has it; the cluster has nodes with {', '.join(values)}"
        )
    if values:
        return PlatformDefault("", f"the cluster has nodes with {', '.join(values)}, and no label of the group sets it")
    if label == OS_LABEL:  # every cluster needs Linux nodes
        return PlatformDefault("linux", "no node of the cluster has the label")
    return PlatformDefault("", "no node of the cluster has the label, and no label of the group sets it")


def _with_platform(
    labels: Mapping[str, str], defaults: Mapping[str, PlatformDefault]
) -> tuple[dict[str, str], list[str]]:
    """Return the labels with the platform's added, and a message for each label that is assumed or unknown."""
    missing = {label: default for label, default in defaults.items() if not labels.get(label)}
    added = {label: default.value for label, default in missing.items() if default.value}
    return {**added, **labels}, [default.describe(label) for label, default in missing.items()]


def from_annotations(
    group: NodeGroup, defaults: ClusterDefaults
) -> tuple[NodeTemplate | ObjectProblem, tuple[ObjectProblem, ...]]:
    """Estimate a group's node template from its annotations and its object's template, but add no pods.

    The rules are upstream's: capacity annotations of cpu and memory are required, and labels and taints in annotations
    override those of the template. Unlike upstream, what they leave open comes from the cluster.

    Args:
        group: the node group.
        defaults: what the cluster's nodes have (:func:`cluster_defaults`).

    Returns:
        The template, or the problem that prevents it; and a problem for each invalid annotation.
    """
    reading = _AnnotationReader(group, [])
    capacity = _capacity(reading, defaults)
    if isinstance(capacity, ObjectProblem):
        return capacity, tuple(reading.wrong)
    reserved, reserve_message = _reserved(reading, capacity, defaults)
    name = template_name(group.id)
    labels, platform = _with_platform({**group.template.labels, **_labels(reading)}, defaults.platform)
    node = Node(
        name=name,
        uid=name,
        labels=Labels(labels),
        taints=with_taints(group.template.taints, _taints(reading)),
        allocatable=allocatable(capacity, reserved),
        capacity=capacity,
        conditions=READY,
    )
    drivers = _drivers(reading)
    assumed = [*platform, reserve_message, "no static pods"]
    if not reading.text("maxPods")[0]:
        assumed.append(f"at most {defaults.max_pods} pods: {defaults.max_pods_why}")
    template = NodeTemplate(
        group=group.id,
        node=node,
        drivers=CSINode(name=name, drivers=drivers) if drivers else None,
        origin=TemplateOrigin.ANNOTATIONS,
        assumptions=tuple(assumed),
    )
    return template, tuple(reading.wrong)


def stated_capacity(group: NodeGroup) -> ResourceList:
    """Return the valid amounts in a group's capacity annotations. No defaults are added."""
    reading = _AnnotationReader(group, [])
    gpus, (_, kind) = reading.count("gpu-count"), reading.text("gpu-type")
    found = {
        "cpu": reading.amount("cpu", "cpu"),
        "memory": reading.amount("memory", "memory"),
        "ephemeral-storage": reading.amount("ephemeral-disk", "ephemeral-storage"),
        "pods": reading.count("maxPods"),
        kind or NVIDIA: gpus,
    }
    return ResourceList({name: amount for name, amount in found.items() if amount})


def _capacity(reading: _AnnotationReader, defaults: ClusterDefaults) -> ResourceList | ObjectProblem:
    found = {"cpu": reading.amount("cpu", "cpu"), "memory": reading.amount("memory", "memory")}
    group = reading.group
    missing = [_keys(group, name) for name, amount in found.items() if not amount]
    if missing:
        message = (
            "has no node to learn from, and its annotations do not state its capacity: "
            f"{' and '.join(missing)} must be given"
        )
        return ObjectProblem(group.kind, group.namespace, group.name, reasons.NO_TEMPLATE, message)
    found["ephemeral-storage"] = reading.amount("ephemeral-disk", "ephemeral-storage")
    found["pods"] = reading.count("maxPods") or defaults.max_pods
    if gpus := reading.count("gpu-count"):
        _, kind = reading.text("gpu-type")
        if not kind and not group.api_version.startswith(MACHINE_API):
            reading.blame(f"{CAPACITY}gpu-count", f"requires {CAPACITY}gpu-type, e.g. {NVIDIA}")
        else:
            found[kind or NVIDIA] = gpus
    return ResourceList({name: amount for name, amount in found.items() if amount})


def _keys(group: NodeGroup, name: str) -> str:
    """Return the annotation that states an amount. Sets of OpenShift usually have OpenShift's own key."""
    if not group.api_version.startswith(MACHINE_API):
        return CAPACITY + name
    return f"{CAPACITY}{name} (or {MACHINE_API}/{_DEPRECATED[name]}{', in MiB' if name == 'memory' else ''})"


def _reserved(
    reading: _AnnotationReader, capacity: ResourceList, defaults: ClusterDefaults
) -> tuple[ResourceList, str]:
    """Return the part of the capacity that is not allocatable, and a message about it."""
    reserved = dict(defaults.reserve(capacity))
    for part in reading.group.template.annotations.get(RESERVED, "").split(","):
        if not part.strip():
            continue
        name, _, text = part.strip().partition("=")
        try:
            reserved[name] = resource_amount(name, text)
        except QuantityError as error:
            reading.blame(RESERVED, f"must have the form cpu=500m,memory=1Gi: {error}")
    amounts = ", ".join(f"{format_amount(name, reserved[name])} {name}" for name in sorted(reserved))
    return ResourceList(reserved), f"{amounts} of the capacity are not allocatable"


def _labels(reading: _AnnotationReader) -> dict[str, str]:
    found = {}
    for key, part in reading.parts("labels"):
        name, equals, value = part.partition("=")
        if equals and is_label_key(name) and is_label_value(value):
            found[name] = value
        else:
            reading.blame(key, f"must be comma-separated labels of the form key=value, not {part!r}")
    return found


def _taints(reading: _AnnotationReader) -> list[Taint]:
    found = []
    for key, part in reading.parts("taints"):
        match = _TAINT.fullmatch(part)
        value = (match["value"] or "") if match else ""
        if match and is_label_key(match["key"]) and is_label_value(value):
            found.append(Taint(key=match["key"], effect=match["effect"], value=value))
        else:
            reading.blame(key, f"must be comma-separated taints of the form key=value:NoSchedule, not {part!r}")
    return found


def _drivers(reading: _AnnotationReader) -> tuple[NodeDriver, ...]:
    found = {}
    for key, part in reading.parts("csi-driver"):
        name, _, limit = part.partition("=")
        if name and _COUNT.fullmatch(limit):
            found[name] = NodeDriver(name=name, limit=int(limit))
        else:
            reading.blame(key, f"must be comma-separated drivers of the form name=limit, not {part!r}")
    return tuple(found[name] for name in sorted(found))


def has_provider_template(group: NodeGroup) -> bool:
    """Return whether the group's template comes from an external provider instead of annotations."""
    return group.template.node is not None or bool(group.template.no_node_reason)


def from_provider(
    group: NodeGroup, defaults: ClusterDefaults, *, startup: Collection[str]
) -> NodeTemplate | ObjectProblem:
    """Return the template that an external provider reports, with no pods added, or the problem that prevents it.

    It is used unchanged except for fields that belong to one node: its name, and taints and conditions that describe
    its state.
    """
    node = group.template.node
    amounts = ResourceList() if node is None else node.allocatable or node.capacity
    if node is None or not (amounts.get("cpu") and amounts.get("memory")):
        why = group.template.no_node_reason or "its provider reports no cpu or memory"
        message = f"has no node to learn from, and its node template is unknown: {why}"
        return ObjectProblem(group.kind, group.namespace, group.id, reasons.NO_TEMPLATE, message)
    labels, assumed = _with_platform(node.labels, defaults.platform)
    if not node.allocatable:
        assumed.append("its provider reports no allocatable amounts; they are estimated from the capacity")
    return NodeTemplate(
        group=group.id,
        node=_new_node(replace(node, labels=Labels(labels)), template_name(group.id), defaults, startup),
        origin=TemplateOrigin.PROVIDER,
        assumptions=tuple(assumed),
    )


def _new_node(node: Node, name: str, defaults: ClusterDefaults, startup: Collection[str]) -> Node:
    amounts = node.allocatable or allocatable(node.capacity, defaults.reserve(node.capacity))
    return replace(
        node,
        name=name,
        uid=name,
        resource_version="",
        labels=Labels({key: value for key, value in node.labels.items() if key != HOSTNAME}),
        annotations=NO_LABELS,
        created=None,
        deleted=None,
        unschedulable=False,
        provider_id="",
        taints=with_taints(lasting_taints(node.taints, startup), ()),
        allocatable=amounts if amounts.get("pods") else ResourceList({**amounts, "pods": defaults.max_pods}),
        capacity=node.capacity or amounts,
        conditions=READY,
        images=ResourceList(),
    )
