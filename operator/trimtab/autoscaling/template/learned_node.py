"""Defines LearnedNode, the record of a group's nodes in an annotation of the group's object.

A group that is scaled to 0 has no sample node, and its capacity annotations are an estimate that lacks labels, devices
and static pods. Therefore a description of its last node, the *record*, is stored in an annotation. Other actors can
write annotations too, and objects are restored from backups. Therefore a record is validated, and compared with the
template for which it was written.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from trimtab.api import reasons
from trimtab.autoscaling.groups.annotations import CAPACITY, LEARNED_NODE
from trimtab.autoscaling.groups.node_group import NodeGroup, ObjectProblem
from trimtab.autoscaling.template.estimate import stated_capacity
from trimtab.autoscaling.template.node_template import lasting_taints
from trimtab.kube.frozen import NO_LABELS, NO_RESOURCES, Labels, ResourceList
from trimtab.kube.objects import MachinePool, NodeDriver, Taint
from trimtab.kube.rules.node_labels import HOSTNAME
from trimtab.kube.rules.quantity import QuantityError, format_amount, resource_amount
from trimtab.kube.rules.selectors import is_label_key, is_label_value

VERSION: Final = 1
MAX_TEXT: Final = 8192
"""Maximum characters of the annotation.

All annotations of an object together may have 256 KiB, and every read of the object returns them.
"""

_MAX_LABELS: Final = 256
_MAX_TAINTS: Final = 64
_MAX_DRIVERS: Final = 64
_MAX_PODS: Final = 10_000
_MAX_MILLICORES: Final = 10_000_000
_MAX_AMOUNT: Final = 1 << 50
"""A pebibyte. No node has that much of any resource."""
_MAX_BOOT: Final = 86_400.0

_SAME_SIZE: Final = 0.15
"""Maximum relative difference between actual and nominal memory and disk, because kernel and firmware use a part."""

_TAINT: Final = re.compile(r"(?P<key>[^=:]+)(?:=(?P<value>[^=:]*))?:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute)")
_CAPACITY_ANNOTATIONS: Final = ("labels", "taints", "csi-driver")
"""Capacity annotations that describe a group's nodes, but contain no amount of a resource."""

Amounts = dict[str, Annotated[str, Meta(max_length=32)]]


class NodeOverhead(Struct, frozen=True, gc=False):
    """Pods that every node has before other pods are placed: their number and their total requests."""

    pods: int = 0
    requests: ResourceList = NO_RESOURCES


class LearnedNode(Struct, frozen=True):
    """The record of a group's nodes.

    Attributes:
        recorded_at: the time at which the node was recorded, in seconds since the epoch.
        template_digest: digest of the machine type and of other template fields that are not labels or taints, when the
            node was recorded.
        capacity_digest: digest of the capacity annotations when the node was recorded.
        template_since: the time at which a change of the template was first observed, in seconds since the epoch;
            ``None`` if the template never changed. Nodes created before that time do not represent the new template.
        node: name of the recorded node; empty if the template has changed and no newer node exists yet.
        allocatable: the allocatable amounts of the node, before any pod is placed.
        capacity: the capacity of the node.
        labels: labels of new nodes, excluding those that the group's object defines.
        taints: taints of new nodes, excluding those that the group's object defines. Of the object's
            ``initial_taints``, which a node gets only when it joins, it includes those that the node still had.
        drivers: the node's CSI drivers; ``None`` if they were unknown.
        daemons: DaemonSet pods on the node.
        static: static pods on the node.
        boot_seconds: seconds from the creation of a machine until its node is ready; ``None`` if not measured.
    """

    recorded_at: float
    template_digest: str
    capacity_digest: str = ""
    template_since: float | None = None
    node: str = ""
    allocatable: ResourceList = NO_RESOURCES
    capacity: ResourceList = NO_RESOURCES
    labels: Labels = NO_LABELS
    taints: tuple[Taint, ...] = ()
    drivers: tuple[NodeDriver, ...] | None = None
    daemons: NodeOverhead = NodeOverhead()
    static: NodeOverhead = NodeOverhead()
    boot_seconds: float | None = None

    @property
    def known(self) -> bool:
        """Return whether the record describes a node. Otherwise it only records that the template changed."""
        return bool(self.allocatable)


class _Pods(Struct, omit_defaults=True):
    pods: Annotated[int, Meta(ge=0, le=_MAX_PODS)] = 0
    requests: Amounts = {}


class _AnnotationFormat(Struct, omit_defaults=True):
    """The JSON format of the annotation. Unknown fields are ignored, as later versions may add some."""

    v: Literal[1]
    at: datetime
    of: Annotated[str, Meta(max_length=64)]
    said: Annotated[str, Meta(max_length=64)] = ""
    since: datetime | None = None
    node: Annotated[str, Meta(max_length=253)] = ""
    allocatable: Amounts = {}
    capacity: Amounts = {}
    labels: Annotated[dict[str, str], Meta(max_length=_MAX_LABELS)] = {}
    taints: Annotated[list[str], Meta(max_length=_MAX_TAINTS)] = []
    drivers: Annotated[dict[str, int | None], Meta(max_length=_MAX_DRIVERS)] | None = None
    daemons: _Pods = msgspec.field(default_factory=_Pods)
    static: _Pods = msgspec.field(default_factory=_Pods)
    boot: Annotated[float, Meta(ge=0, le=_MAX_BOOT)] | None = None


def encode(learned: LearnedNode) -> str:
    """Return a record as the value of the annotation. It is compact, and equal records yield the same value.

    Times are whole seconds. Amounts are exact.
    """
    boot = learned.boot_seconds
    document = _AnnotationFormat(
        v=VERSION,
        at=_time(learned.recorded_at),
        of=learned.template_digest,
        said=learned.capacity_digest,
        since=None if learned.template_since is None else _time(learned.template_since),
        node=learned.node,
        allocatable=_texts(learned.allocatable),
        capacity=_texts(learned.capacity),
        labels=dict(sorted(learned.labels.items())),
        taints=[
            f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
            for taint in learned.taints
        ],
        drivers=None if learned.drivers is None else {each.name: each.limit for each in learned.drivers},
        daemons=_Pods(learned.daemons.pods, _texts(learned.daemons.requests)),
        static=_Pods(learned.static.pods, _texts(learned.static.requests)),
        boot=None if boot is None else round(min(max(boot, 0.0), _MAX_BOOT), 1),
    )
    return msgspec.json.encode(document, order="deterministic").decode()


def decode(text: str) -> LearnedNode:
    """Decode and validate the value of the annotation.

    Raises:
        ValueError: the annotation is invalid. The message names the field and the allowed values.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"is too long: {len(text)} characters, and at most {MAX_TEXT} are allowed")
    try:
        document = msgspec.json.decode(text, type=_AnnotationFormat)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except msgspec.DecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None
    allocatable, capacity = _amounts("allocatable", document.allocatable), _amounts("capacity", document.capacity)
    _check_node(allocatable, capacity)
    return LearnedNode(
        recorded_at=_seconds("at", document.at),
        template_digest=document.of,
        capacity_digest=document.said,
        template_since=None if document.since is None else _seconds("since", document.since),
        node=document.node,
        allocatable=allocatable,
        capacity=capacity,
        labels=_labels(document.labels),
        taints=_taints(document.taints),
        drivers=None if document.drivers is None else _drivers(document.drivers),
        daemons=NodeOverhead(document.daemons.pods, _amounts("daemons.requests", document.daemons.requests)),
        static=NodeOverhead(document.static.pods, _amounts("static.requests", document.static.requests)),
        boot_seconds=document.boot,
    )


def learned_node(group: NodeGroup) -> LearnedNode | ObjectProblem | None:
    """Return the record of a group, a problem if the record is invalid, or ``None`` if the group has none."""
    text = group.template.annotations.get(LEARNED_NODE)
    if not text:
        return None
    try:
        return decode(text)
    except ValueError as error:
        return _problem(group, reasons.INVALID_LEARNED_NODE, f"annotation {LEARNED_NODE} cannot be used: {error}")


def outdated_problem(group: NodeGroup, learned: LearnedNode) -> ObjectProblem | None:
    """Return a problem if a group's record no longer applies, else ``None``.

    A record applies while the group's object has the same machine type. Labels and taints of the object may change,
    since they are not part of the record. Capacity annotations may change to the node's actual amounts. If they change
    to other amounts, the machines have changed.
    """
    if learned.template_digest != template_digest(group):
        what = "its machine type, or labels, taints or drivers in its annotations,"
    elif learned.capacity_digest != capacity_digest(group) and (differing := _differing(group, learned)):
        what = f"its capacity annotations of {', '.join(differing)}"
    else:
        return None
    message = f"annotation {LEARNED_NODE} describes an older template: {what} changed since"
    return _problem(group, reasons.LEARNED_NODE_OUTDATED, message)


def template_digest(group: NodeGroup) -> str:
    """Return a digest of a group's template, excluding the capacity in its annotations.

    Labels and taints are included only for a MachinePool, because its nodes may have no Machine object that contains
    the labels and taints they were created with.
    """
    source = group.template
    capacity_annotations = {name: source.annotations.get(CAPACITY + name, "") for name in _CAPACITY_ANNOTATIONS}
    known = group.kind != MachinePool.kind
    given = [] if known else [dict(source.labels), _sorted(source.taints)]
    return _digest([source.machine_type, capacity_annotations, _sorted(source.initial_taints), given])


def _sorted(taints: Iterable[Taint]) -> list[tuple[str, str, str]]:
    return sorted((taint.key, taint.effect, taint.value) for taint in taints)


def capacity_digest(group: NodeGroup) -> str:
    """Return a digest of the capacity in a group's annotations; empty if they contain none."""
    amounts = stated_capacity(group)
    return _digest(dict(amounts)) if amounts else ""


def _differing(group: NodeGroup, learned: LearnedNode) -> list[str]:
    """Return the resources whose amount in the group's annotations differs from the node's amount, sorted."""
    return sorted(name for name, amount in stated_capacity(group).items() if not _alike(name, amount, learned.capacity))


def _alike(name: str, amount: int, capacity: Mapping[str, int]) -> bool:
    actual = capacity.get(name, 0)
    ratio = _SAME_SIZE if name in ("memory", "ephemeral-storage") else 0.0
    return abs(amount - actual) <= ratio * max(amount, actual)


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:16]


def _problem(group: NodeGroup, reason: str, message: str) -> ObjectProblem:
    return ObjectProblem(group.kind, group.namespace, group.name, reason, message)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)


def _seconds(field: str, time: datetime) -> float:
    if time.tzinfo is None or not 1970 <= time.year < 9999:
        raise ValueError(f"{field} must be an RFC 3339 time with a time zone, from 1970 to 9998")
    return time.timestamp()


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: format_amount(name, amounts[name]) for name in sorted(amounts)}


def _amounts(field: str, texts: Mapping[str, str]) -> ResourceList:
    found = {}
    for name, text in texts.items():
        try:
            amount = resource_amount(name, text)
        except QuantityError as error:
            raise ValueError(f"{field}.{name}: {error}") from None
        maximum = {"cpu": _MAX_MILLICORES, "pods": _MAX_PODS}.get(name, _MAX_AMOUNT)
        if not is_label_key(name) or not 0 <= amount <= maximum:
            raise ValueError(f"{field}.{name} must be from 0 to {format_amount(name, maximum)}, not {text}")
        found[name] = amount
    return ResourceList(found)


def _check_node(allocatable: ResourceList, capacity: ResourceList) -> None:
    """Raise ``ValueError`` if the amounts are not plausible for a node. Records without amounts are valid."""
    if not allocatable and not capacity:
        return
    for name in ("cpu", "memory", "pods"):
        if not allocatable.get(name):
            raise ValueError(f"allocatable.{name} must be more than 0")
    for name, amount in allocatable.items():
        if amount > capacity.get(name, amount):
            raise ValueError(f"allocatable.{name} must not be more than capacity.{name}")


def _labels(labels: Mapping[str, str]) -> Labels:
    for key, value in labels.items():
        if not is_label_key(key) or not is_label_value(value) or key == HOSTNAME:
            raise ValueError(f"labels: {key}={value} cannot be a label of several nodes")
    return Labels(labels)


def _taints(texts: list[str]) -> tuple[Taint, ...]:
    found = []
    for text in texts:
        match = _TAINT.fullmatch(text)
        value = (match["value"] or "") if match else ""
        if match is None or not is_label_key(match["key"]) or not is_label_value(value):
            raise ValueError(f"taints must have the form key=value:NoSchedule, not {text!r}")
        found.append(Taint(key=match["key"], effect=match["effect"], value=value))
    return lasting_taints(found, ())


def _drivers(limits: Mapping[str, int | None]) -> tuple[NodeDriver, ...]:
    for name, limit in limits.items():
        if not name or len(name) > 253 or (limit is not None and not 0 <= limit <= _MAX_AMOUNT):
            raise ValueError(f"drivers.{name} must be at least 0, or null for no limit")
    return tuple(NodeDriver(name=name, limit=limits[name]) for name in sorted(limits))
