"""A template from what a group's object says: for groups that have no node to learn from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.autoscaling.groups.keys import CAPACITY, RESERVED
from trimtab.autoscaling.groups.node_group import NodeGroup, Problem
from trimtab.autoscaling.template.node_template import NodeTemplate, TemplateOrigin, template_name
from trimtab.autoscaling.template.reserve import allocatable, reserve
from trimtab.autoscaling.template.taints import with_taints
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import CSINode, Node, NodeCondition, NodeDriver, Taint
from trimtab.kube.objects.machine import MACHINE_API
from trimtab.kube.rules.quantity import QuantityError, format_amount, resource_amount
from trimtab.kube.rules.selector_syntax import is_label_key, is_label_value

NVIDIA: Final = "nvidia.com/gpu"
MAX_PODS: Final = 110
"""The kubelet's default, and upstream's."""

ARCH: Final = "kubernetes.io/arch"
GENERIC: Final = {"kubernetes.io/os": "linux", ARCH: "amd64"}
"""What nodes are unless labels say otherwise, as upstream assumes."""

READY: Final = (NodeCondition(type="Ready", status="True"),)

_DEPRECATED: Final = {"cpu": "vCPU", "memory": "memoryMb", "gpu-count": "GPU", "maxPods": "maxPods"}
"""OpenShift's older keys below its own prefix; upstream's come first. memoryMb is in MiB."""

_COUNT: Final = re.compile(r"[0-9]{1,9}")
_TAINT: Final = re.compile(r"(?P<key>[^=:]+)(?:=(?P<value>[^=:]*))?:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute)")


class _Reading(Struct):
    """What was read of a group's annotations, and what of them cannot be read."""

    group: NodeGroup
    wrong: list[Problem]

    def text(self, name: str) -> tuple[str, str]:
        """The key and the text of a capacity annotation; both empty where it is not there."""
        annotations = self.group.template.annotations
        keys = [CAPACITY + name]
        if self.group.api_version.startswith(MACHINE_API) and name in _DEPRECATED:
            keys.append(f"{MACHINE_API}/{_DEPRECATED[name]}")
        return next(((key, annotations[key]) for key in keys if annotations.get(key)), ("", ""))

    def amount(self, name: str, resource: str) -> int | None:
        """A quantity; ``None`` where there is none that can be read."""
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
        """A whole number; ``None`` where there is none that can be read."""
        key, text = self.text(name)
        if key and not _COUNT.fullmatch(text):
            self.blame(key, f"must be a whole number, not {text!r}")
            return None
        return int(text) if key else None

    def parts(self, name: str) -> Iterator[tuple[str, str]]:
        """The parts of a list between commas, each with the key."""
        key, text = self.text(name)
        yield from ((key, part.strip()) for part in text.split(",") if part.strip())

    def blame(self, key: str, what: str) -> None:
        """Note that an annotation cannot be read, and go on without it."""
        group = self.group
        message = f"annotation {key} {what}"
        self.wrong.append(Problem(group.kind, group.namespace, group.name, reasons.INVALID_ANNOTATION, message))


def annotated(group: NodeGroup) -> tuple[NodeTemplate | Problem, tuple[Problem, ...]]:
    """The template that a group's annotations and its object's template make, without pods; else why there is none.

    Upstream's rules: capacity annotations of cpu and memory must be there; labels and taints of the template hold, and
    the annotations' own over them. The arch label is amd64 unless some label says otherwise.

    Returns:
        The template, or why there is none; and what of the annotations cannot be read.
    """
    reading = _Reading(group, [])
    capacity = _capacity(reading)
    if isinstance(capacity, Problem):
        return capacity, tuple(reading.wrong)
    held, told = _held(reading, capacity)
    name = template_name(group.id)
    said = {**group.template.labels, **_labels(reading)}
    node = Node(
        name=name,
        uid=name,
        labels=Labels({**GENERIC, **said}),
        taints=with_taints(group.template.taints, _taints(reading)),
        allocatable=allocatable(capacity, held),
        capacity=capacity,
        conditions=READY,
    )
    drivers = _drivers(reading)
    assumed = [told, "no static pods"]
    if ARCH not in said:
        assumed.insert(0, f"{ARCH} is {GENERIC[ARCH]}, as no label says otherwise")
    template = NodeTemplate(
        group=group.id,
        node=node,
        drivers=CSINode(name=name, drivers=drivers) if drivers else None,
        origin=TemplateOrigin.ANNOTATIONS,
        assumed=tuple(assumed),
    )
    return template, tuple(reading.wrong)


def said(group: NodeGroup) -> ResourceList:
    """What of a capacity a group's annotations say and can be read; nothing is filled in."""
    reading = _Reading(group, [])
    gpus, (_, kind) = reading.count("gpu-count"), reading.text("gpu-type")
    found = {
        "cpu": reading.amount("cpu", "cpu"),
        "memory": reading.amount("memory", "memory"),
        "ephemeral-storage": reading.amount("ephemeral-disk", "ephemeral-storage"),
        "pods": reading.count("maxPods"),
        kind or NVIDIA: gpus,
    }
    return ResourceList({name: amount for name, amount in found.items() if amount})


def _capacity(reading: _Reading) -> ResourceList | Problem:
    found = {"cpu": reading.amount("cpu", "cpu"), "memory": reading.amount("memory", "memory")}
    group = reading.group
    missing = [CAPACITY + name for name, amount in found.items() if not amount]
    if missing:
        message = (
            "has no node to learn from, and its annotations do not say what one would be like: "
            f"{' and '.join(missing)} must be given"
        )
        return Problem(group.kind, group.namespace, group.name, reasons.NO_TEMPLATE, message)
    found["ephemeral-storage"] = reading.amount("ephemeral-disk", "ephemeral-storage")
    found["pods"] = reading.count("maxPods") or MAX_PODS
    if gpus := reading.count("gpu-count"):
        _, kind = reading.text("gpu-type")
        if not kind and not group.api_version.startswith(MACHINE_API):
            reading.blame(f"{CAPACITY}gpu-count", f"needs {CAPACITY}gpu-type beside it, e.g. {NVIDIA}")
        else:
            found[kind or NVIDIA] = gpus
    return ResourceList({name: amount for name, amount in found.items() if amount})


def _held(reading: _Reading, capacity: ResourceList) -> tuple[ResourceList, str]:
    """What is held back, and that in words."""
    held = dict(reserve(capacity))
    for part in reading.group.template.annotations.get(RESERVED, "").split(","):
        if not part.strip():
            continue
        name, _, text = part.strip().partition("=")
        try:
            held[name] = resource_amount(name, text)
        except QuantityError as error:
            reading.blame(RESERVED, f"must be as cpu=500m,memory=1Gi: {error}")
    amounts = ", ".join(f"{format_amount(name, held[name])} {name}" for name in sorted(held))
    return ResourceList(held), f"{amounts} of the capacity are not allocatable"


def _labels(reading: _Reading) -> dict[str, str]:
    found = {}
    for key, part in reading.parts("labels"):
        name, equals, value = part.partition("=")
        if equals and is_label_key(name) and is_label_value(value):
            found[name] = value
        else:
            reading.blame(key, f"must be labels as key=value between commas, not {part!r}")
    return found


def _taints(reading: _Reading) -> list[Taint]:
    found = []
    for key, part in reading.parts("taints"):
        match = _TAINT.fullmatch(part)
        value = (match["value"] or "") if match else ""
        if match and is_label_key(match["key"]) and is_label_value(value):
            found.append(Taint(key=match["key"], effect=match["effect"], value=value))
        else:
            reading.blame(key, f"must be taints as key=value:NoSchedule between commas, not {part!r}")
    return found


def _drivers(reading: _Reading) -> tuple[NodeDriver, ...]:
    found = {}
    for key, part in reading.parts("csi-driver"):
        name, _, limit = part.partition("=")
        if name and _COUNT.fullmatch(limit):
            found[name] = NodeDriver(name=name, limit=int(limit))
        else:
            reading.blame(key, f"must be drivers as name=limit between commas, not {part!r}")
    return tuple(found[name] for name in sorted(found))
