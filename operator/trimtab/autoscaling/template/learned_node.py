"""LearnedNode: what a real node of a group was like, as it is written down on the group's object.

A group that is scaled to nothing has no node to learn from, and what its annotations say of capacity is an estimate
that lacks labels, devices, and static pods. So what the last nodes were like stays in one annotation, and outlives both
the nodes and this process. Others can write annotations too, and objects are restored from backups: what is read is
held to what a node can be, and to the template that it was made from.
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
from trimtab.autoscaling.groups.keys import CAPACITY, LEARNED_NODE
from trimtab.autoscaling.groups.node_group import NodeGroup, Problem
from trimtab.autoscaling.template.annotated import said
from trimtab.autoscaling.template.taints import lasting
from trimtab.kube.frozen import NO_LABELS, NO_RESOURCES, Labels, ResourceList
from trimtab.kube.objects import MachinePool, NodeDriver, Taint
from trimtab.kube.rules.node_labels import HOSTNAME
from trimtab.kube.rules.quantity import QuantityError, format_amount, resource_amount
from trimtab.kube.rules.selector_syntax import is_label_key, is_label_value

VERSION: Final = 1
MAX_TEXT: Final = 8192
"""Characters: all annotations of an object together may have 256 KiB, and every read of the object carries them."""

_MAX_LABELS: Final = 256
_MAX_TAINTS: Final = 64
_MAX_DRIVERS: Final = 64
_MAX_PODS: Final = 10_000
_MAX_MILLICORES: Final = 10_000_000
_MAX_AMOUNT: Final = 1 << 50
"""A pebibyte: no node has as much of anything."""
_MAX_BOOT: Final = 86_400.0

_SAME_SIZE: Final = 0.15
"""By how much memory and disk may differ from what they are sold as: kernel and firmware take their part."""

_TAINT: Final = re.compile(r"(?P<key>[^=:]+)(?:=(?P<value>[^=:]*))?:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute)")
_TOLD: Final = ("labels", "taints", "csi-driver")
"""Capacity annotations that hold for a group's nodes whatever their size."""

Amounts = dict[str, Annotated[str, Meta(max_length=32)]]


class Overhead(Struct, frozen=True, gc=False):
    """What comes with each node before any pod is placed: how many pods, and what they request together."""

    pods: int = 0
    requests: ResourceList = NO_RESOURCES


class LearnedNode(Struct, frozen=True):
    """What a group's nodes were like.

    Attributes:
        at: when it was seen, in seconds since the epoch.
        template: a digest of what the group's object said then that its labels and taints do not cover: the type of
            machine above all.
        said: a digest of the capacity that its annotations said then.
        since: when the template was first seen as it is, where it changed: nodes made before that teach nothing.
        node: which node it was; empty where the template has changed and no newer node was there yet.
        allocatable: of the node, before any pod.
        capacity: of the node.
        labels: that new nodes will have too, beside those that the group's object gives them.
        taints: that new nodes will have too, beside those that the group's object gives them; of what it gives them
            once only (``initial_taints``) those that the node still had.
        drivers: the node's volume drivers; ``None`` where they were not known.
        daemons: pods of DaemonSets.
        static: static pods.
        boot_seconds: how long a node takes from its machine to being ready; ``None`` if nobody has measured it.
    """

    at: float
    template: str
    said: str = ""
    since: float | None = None
    node: str = ""
    allocatable: ResourceList = NO_RESOURCES
    capacity: ResourceList = NO_RESOURCES
    labels: Labels = NO_LABELS
    taints: tuple[Taint, ...] = ()
    drivers: tuple[NodeDriver, ...] | None = None
    daemons: Overhead = Overhead()
    static: Overhead = Overhead()
    boot_seconds: float | None = None

    @property
    def known(self) -> bool:
        """Whether it says what a node is like, and not only that the template changed."""
        return bool(self.allocatable)


class _Pods(Struct, omit_defaults=True):
    pods: Annotated[int, Meta(ge=0, le=_MAX_PODS)] = 0
    requests: Amounts = {}


class _Written(Struct, omit_defaults=True):
    """The annotation's form. Fields that it does not know are left aside: a later trimtab may add some."""

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
    """The annotation's text: compact, and the same for the same value. Times are whole seconds, amounts exact."""
    boot = learned.boot_seconds
    document = _Written(
        v=VERSION,
        at=_time(learned.at),
        of=learned.template,
        said=learned.said,
        since=None if learned.since is None else _time(learned.since),
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
    """What an annotation says.

    Raises:
        ValueError: it cannot be read, or says what no node can be; the message says which field, and what is allowed.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"is too long: {len(text)} characters, and at most {MAX_TEXT} are allowed")
    try:
        found = msgspec.json.decode(text, type=_Written)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except msgspec.DecodeError as error:
        raise ValueError(f"is no JSON: {error}") from None
    allocatable, capacity = _amounts("allocatable", found.allocatable), _amounts("capacity", found.capacity)
    _check_node(allocatable, capacity)
    return LearnedNode(
        at=_seconds("at", found.at),
        template=found.of,
        said=found.said,
        since=None if found.since is None else _seconds("since", found.since),
        node=found.node,
        allocatable=allocatable,
        capacity=capacity,
        labels=_labels(found.labels),
        taints=_taints(found.taints),
        drivers=None if found.drivers is None else _drivers(found.drivers),
        daemons=Overhead(found.daemons.pods, _amounts("daemons.requests", found.daemons.requests)),
        static=Overhead(found.static.pods, _amounts("static.requests", found.static.requests)),
        boot_seconds=found.boot,
    )


def learned_node(group: NodeGroup) -> LearnedNode | Problem | None:
    """What is written down on a group; ``None`` where nothing is, a problem where it cannot be used."""
    text = group.template.annotations.get(LEARNED_NODE)
    if not text:
        return None
    try:
        return decode(text)
    except ValueError as error:
        return _problem(group, reasons.INVALID_LEARNED_NODE, f"annotation {LEARNED_NODE} cannot be used: {error}")


def outdated(group: NodeGroup, learned: LearnedNode) -> Problem | None:
    """Why what is written down does not hold any more; ``None`` while it does.

    It holds as long as the group's object says the same of the type of machine. Its labels and taints may change: they
    count as they are, and are no part of what is written down. Annotations of the capacity may change as long as they
    say what the node had: where they were wrong all the time the node is right, and where they are changed to something
    else the machines were.
    """
    if learned.template != template_digest(group):
        what = "its type of machine, or what its annotations say of labels, taints or drivers,"
    elif learned.said != said_digest(group) and (differing := _differing(group, learned)):
        what = f"its annotations of {', '.join(differing)}"
    else:
        return None
    message = f"annotation {LEARNED_NODE} is of another template: {what} changed since"
    return _problem(group, reasons.LEARNED_NODE_OUTDATED, message)


def template_digest(group: NodeGroup) -> str:
    """Tells two templates of nodes apart, whatever the size that annotations say.

    Labels and taints tell them apart only where nodes have no Machine, by which one sees what they got of a template.
    """
    source = group.template
    told = {name: source.annotations.get(CAPACITY + name, "") for name in _TOLD}
    known = group.kind != MachinePool.kind
    given = [] if known else [dict(source.labels), _sorted(source.taints)]
    return _digest([source.machine_type, told, _sorted(source.initial_taints), given])


def _sorted(taints: Iterable[Taint]) -> list[tuple[str, str, str]]:
    return sorted((taint.key, taint.effect, taint.value) for taint in taints)


def said_digest(group: NodeGroup) -> str:
    """Tells two capacities apart that annotations say; empty where they say none."""
    amounts = said(group)
    return _digest(dict(amounts)) if amounts else ""


def _differing(group: NodeGroup, learned: LearnedNode) -> list[str]:
    """The resources of which the group's annotations say another amount than the node had, by name."""
    return sorted(name for name, amount in said(group).items() if not _alike(name, amount, learned.capacity))


def _alike(name: str, amount: int, capacity: Mapping[str, int]) -> bool:
    there = capacity.get(name, 0)
    ratio = _SAME_SIZE if name in ("memory", "ephemeral-storage") else 0.0
    return abs(amount - there) <= ratio * max(amount, there)


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:16]


def _problem(group: NodeGroup, reason: str, message: str) -> Problem:
    return Problem(group.kind, group.namespace, group.name, reason, message)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)


def _seconds(field: str, time: datetime) -> float:
    if time.tzinfo is None or not 1970 <= time.year < 9999:
        raise ValueError(f"{field} must be a time as RFC 3339 has it, with its zone, from 1970 on and before 9999")
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
        most = {"cpu": _MAX_MILLICORES, "pods": _MAX_PODS}.get(name, _MAX_AMOUNT)
        if not is_label_key(name) or not 0 <= amount <= most:
            raise ValueError(f"{field}.{name} must be from 0 to {format_amount(name, most)}, not {text}")
        found[name] = amount
    return ResourceList(found)


def _check_node(allocatable: ResourceList, capacity: ResourceList) -> None:
    """Raise ``ValueError`` unless it could be a node, or nothing is said of one at all."""
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
            raise ValueError(f"taints must be as key=value:NoSchedule, not {text!r}")
        found.append(Taint(key=match["key"], effect=match["effect"], value=value))
    return lasting(found, ())


def _drivers(limits: Mapping[str, int | None]) -> tuple[NodeDriver, ...]:
    for name, limit in limits.items():
        if not name or len(name) > 253 or (limit is not None and not 0 <= limit <= _MAX_AMOUNT):
            raise ValueError(f"drivers.{name} must be from 0 on, or null for no limit")
    return tuple(NodeDriver(name=name, limit=limits[name]) for name in sorted(limits))
