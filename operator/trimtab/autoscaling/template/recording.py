"""Writes a description of a group's nodes to the group's object, so that a group scaled to 0 still has a template."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from trimtab.autoscaling.groups.annotations import LEARNED_NODE
from trimtab.autoscaling.groups.node_group import GroupMachine, MachineState, NodeGroup, ObjectProblem, TemplateSource
from trimtab.autoscaling.providers.dialects import DIALECTS, annotate_group
from trimtab.autoscaling.template.build import SampleQuality, sample_quality
from trimtab.autoscaling.template.estimate import stated_capacity
from trimtab.autoscaling.template.learned_node import (
    MAX_TEXT,
    LearnedNode,
    NodeOverhead,
    capacity_digest,
    encode,
    learned_node,
    outdated_problem,
    template_digest,
)
from trimtab.autoscaling.template.node_template import NodeTemplate, TemplateOrigin, Templates, daemon_set_of
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import Node, Pod, Taint
from trimtab.kube.objects.machine import CLUSTER_API, MACHINE_API

MIN_SECONDS: Final = 300.0
"""Minimum seconds between two writes of fields that affect which pods fit.

It prevents the annotation from changing back and forth if the group's nodes differ.
"""
MIN_SECONDS_MINOR: Final = 3600.0
"""Minimum seconds between two writes of the other fields: the pods that run on every node, and the boot time."""
DEVICE_SECONDS: Final = 1800.0
"""Seconds after which a ready node is assumed to have all its devices."""

_TOLERANCE: Final = {"memory": 0.015, "ephemeral-storage": 0.05}
"""Maximum relative difference between machines of one type, by resource."""
_OVERHEAD_TOLERANCE: Final = 0.05
_BOOT_TOLERANCE: Final = 0.2


class LearnedNodePatch(Struct, frozen=True):
    """An annotation to write.

    Attributes:
        group: the group whose object is annotated, in the state that the plan was based on.
        text: value of the annotation.
        learned: the record.
    """

    group: NodeGroup
    text: str
    learned: LearnedNode


def next_records(
    groups: Iterable[NodeGroup],
    templates: Templates,
    snapshot: Snapshot,
    now: float,
    *,
    startup_taints: Collection[str] = (),
    boots: Mapping[str, float | None] | None = None,
) -> tuple[LearnedNodePatch, ...]:
    """Return the annotations to write after an iteration; usually none.

    Fields that decide whether pods fit (amounts, labels, taints, drivers) are written when they change, at most every
    five minutes. The pods that run on every node and the boot time are written at most once an hour. Only a settled
    node is recorded, excluding labels and taints that the group's object defines. A changed machine type is written at
    once, because older nodes do not represent it, and a Node object does not contain its machine type.

    Args:
        groups: the groups; groups without an object are skipped.
        templates: templates of these groups, from the same snapshot.
        snapshot: the cluster state.
        now: the current time in seconds since the epoch.
        startup_taints: keys of ``spec.startupTaints``.
        boots: measured boot times of nodes in seconds by group id.

    Returns:
        The annotations in the order of group ids.
    """
    startup = frozenset(startup_taints)
    found = []
    for group in sorted(groups, key=lambda each: each.id):
        if not group.uid or group.api_version.partition("/")[0] not in (MACHINE_API, CLUSTER_API):
            continue
        record = learned_node(group)
        old = None if isinstance(record, ObjectProblem) else record
        boot = (boots or {}).get(group.id)
        new = _next(group, templates.of_group.get(group.id), old, snapshot, now=now, startup=startup, boot=boot)
        text = "" if new is None else encode(new)
        if new is not None and len(text) <= MAX_TEXT:
            found.append(LearnedNodePatch(group, text, new))
    return tuple(found)


def _next(
    group: NodeGroup,
    template: NodeTemplate | None,
    old: LearnedNode | None,
    snapshot: Snapshot,
    *,
    now: float,
    startup: frozenset[str],
    boot: float | None,
) -> LearnedNode | None:
    """Return the record to write for a group, or ``None`` if the existing record is good enough."""
    if old is not None and outdated_problem(group, old) is not None:
        return LearnedNode(
            recorded_at=now,
            template_digest=template_digest(group),
            capacity_digest=capacity_digest(group),
            template_since=now,
        )
    node = None if template is None else _sample(template, snapshot, now=now, startup=startup)
    if template is None or node is None:
        return None
    new = LearnedNode(
        recorded_at=now,
        template_digest=template_digest(group),
        capacity_digest=capacity_digest(group),
        template_since=None if old is None else old.template_since,
        node=node.name,
        allocatable=node.allocatable,
        capacity=node.capacity,
        labels=_labels(template, _peers(group, snapshot, now=now, startup=startup), group.template),
        taints=_taints(template, group.template),
        drivers=None if template.drivers is None else template.drivers.drivers,
        daemons=_overhead(pod for pod in template.pods if daemon_set_of(pod)),
        static=_overhead(pod for pod in template.pods if not daemon_set_of(pod)),
        boot_seconds=boot if boot is not None or old is None else old.boot_seconds,
    )
    if not _complete(group, node, old, now=now):
        return None
    if old is None or not old.known:
        return new if _created_since_change(node, old) else None
    if not _created_since_change(node, old):
        return None
    ago = now - old.recorded_at
    if not 0 <= ago < MIN_SECONDS and _differ_for_pods(old, new):
        return new
    return new if not 0 <= ago < MIN_SECONDS_MINOR and _differs(old, new) else None


def _sample(template: NodeTemplate, snapshot: Snapshot, *, now: float, startup: frozenset[str]) -> Node | None:
    """Return the node that the template was learned from, or ``None`` if there is none or it has not settled."""
    node = snapshot.nodes.get(template.sample) if template.origin is TemplateOrigin.LEARNED else None
    if node is None or sample_quality(node, now=now, startup=startup) is not SampleQuality.SETTLED:
        return None
    return node


def _created_since_change(node: Node, old: LearnedNode | None) -> bool:
    """Return whether a node was created after the template last changed; false if its age is unknown."""
    if old is None or old.template_since is None:
        return True
    return node.created is not None and node.created >= old.template_since


def _complete(group: NodeGroup, node: Node, old: LearnedNode | None, *, now: float) -> bool:
    """Return whether a node has all expected resources, or has been ready for so long that no more will be registered.

    Devices are registered minutes after their node is ready, once their driver is installed.
    """
    wanted = {
        *stated_capacity(group),
        *(() if old is None else (name for name, amount in old.allocatable.items() if amount)),
    }
    if all(node.allocatable.get(name) for name in wanted):
        return True
    since = next((each.since for each in node.conditions if each.type == "Ready"), None)
    return since is None or now - since >= DEVICE_SECONDS


def _peers(group: NodeGroup, snapshot: Snapshot, *, now: float, startup: frozenset[str]) -> list[Node]:
    nodes = (snapshot.nodes.get(machine.node) for machine in group.machines if _has_node(machine))
    return [
        node
        for node in nodes
        if node is not None and sample_quality(node, now=now, startup=startup) is SampleQuality.SETTLED
    ]


def _has_node(machine: GroupMachine) -> bool:
    return bool(machine.node) and machine.state is not MachineState.DELETING


def _labels(template: NodeTemplate, peers: Iterable[Node], source: TemplateSource) -> Labels:
    """Return the labels to record: those that all nodes share and that the group's object does not specify itself."""
    kept = {key: value for key, value in template.node.labels.items() if key not in source.labels}
    for node in peers:
        if kept.items() - node.labels.items():
            kept = {key: value for key, value in kept.items() if node.labels.get(key) == value}
    return Labels(kept)


def _taints(template: NodeTemplate, source: TemplateSource) -> tuple[Taint, ...]:
    """Return the template's taints, excluding the object's taints other than initial ones that the node still has."""
    given = {(taint.key, taint.effect) for taint in source.taints}
    given -= {(taint.key, taint.effect) for taint in source.initial_taints}
    return tuple(taint for taint in template.node.taints if (taint.key, taint.effect) not in given)


def _overhead(pods: Iterable[Pod]) -> NodeOverhead:
    count, total = 0, dict[str, int]()
    for pod in pods:
        count += 1
        for name, amount in pod.spec.requests.items():
            total[name] = total.get(name, 0) + amount
    return NodeOverhead(count, ResourceList(total))


def _differ_for_pods(old: LearnedNode, new: LearnedNode) -> bool:
    """Return whether the records differ so much that some pods may fit on a node of only one of them."""
    return (
        not _within_ratios(old.allocatable, new.allocatable, _TOLERANCE)
        or not _within_ratios(old.capacity, new.capacity, _TOLERANCE)
        or old.labels != new.labels
        or frozenset(old.taints) != frozenset(new.taints)
        or old.drivers != new.drivers
    )


def _differs(old: LearnedNode, new: LearnedNode) -> bool:
    one, other = old.boot_seconds or 0.0, new.boot_seconds or 0.0
    return (
        _overheads_differ(old.daemons, new.daemons)
        or _overheads_differ(old.static, new.static)
        or abs(one - other) > _BOOT_TOLERANCE * max(one, other)
        or old.capacity_digest != new.capacity_digest
    )


def _overheads_differ(old: NodeOverhead, new: NodeOverhead) -> bool:
    ratios = dict.fromkeys((*old.requests, *new.requests), _OVERHEAD_TOLERANCE)
    return old.pods != new.pods or not _within_ratios(old.requests, new.requests, ratios)


def _within_ratios(one: Mapping[str, int], other: Mapping[str, int], ratios: Mapping[str, float]) -> bool:
    return all(
        abs(one.get(name, 0) - other.get(name, 0)) <= ratios.get(name, 0.0) * max(one.get(name, 0), other.get(name, 0))
        for name in {*one, *other}
    )


REQUEST_SECONDS: Final = 10.0
MAX_CONCURRENT_WRITES: Final = 8
MAX_WRITES: Final = 50
"""Maximum writes per iteration. 500 groups of a new cluster are recorded within a few iterations."""
RETRY_SECONDS: Final = 300.0
"""Seconds after which a failed write is retried."""
SECONDS_UNTIL_SEEN: Final = 30.0
"""Minimum seconds between two writes to the same group. By then the watch has delivered the first change."""


class WriteResult(Struct, frozen=True):
    """The result of one write.

    Attributes:
        group: id of the group.
        message: the error message; empty if the write succeeded.
    """

    group: str
    message: str = ""


class LearnedNodeWriter:
    """Writes the annotations of :func:`~trimtab.autoscaling.template.recording.next_records`, one patch per group.

    Records are optional: failed writes raise nothing and are retried minutes later. An object of the same name with
    another UID is not changed.
    """

    def __init__(
        self, api: Api, *, clock: Callable[[], float] | None = None, request_seconds: float = REQUEST_SECONDS
    ) -> None:
        """Create the writer.

        Args:
            api: the API server.
            clock: returns seconds of a monotonic clock; the event loop's by default.
            request_seconds: timeout of one request.
        """
        self._api = api
        self._clock = clock
        self._request_seconds = request_seconds
        self._not_before: dict[str, float] = {}

    async def write(self, records: Sequence[LearnedNodePatch]) -> tuple[WriteResult, ...]:
        """Write at most :data:`MAX_WRITES` annotations concurrently. The next iterations write the others.

        Args:
            records: the annotations of this iteration.

        Returns:
            The results of attempted writes in order.
        """
        now = self._now()
        self._not_before = {uid: time for uid, time in self._not_before.items() if time > now}
        due = [each for each in records if each.group.uid not in self._not_before][:MAX_WRITES]
        at_once = asyncio.Semaphore(MAX_CONCURRENT_WRITES)

        async def one(record: LearnedNodePatch) -> WriteResult:
            async with at_once:
                message = await self._write(record)
            self._not_before[record.group.uid] = self._now() + (RETRY_SECONDS if message else SECONDS_UNTIL_SEEN)
            return WriteResult(record.group.id, message)

        return tuple(await asyncio.gather(*map(one, due)))

    async def _write(self, record: LearnedNodePatch) -> str:
        """Write one annotation, and return the error message; empty if the write succeeded."""
        annotations = {LEARNED_NODE: record.text}
        try:
            async with asyncio.timeout(self._request_seconds):
                await annotate_group(self._api, record.group, annotations, timeout=self._request_seconds)
        except ApiError as error:
            return error.message
        except Unreachable as error:
            return str(error)
        except TimeoutError:
            return f"no answer within {self._request_seconds:g} s"
        return ""

    def _now(self) -> float:
        return asyncio.get_running_loop().time() if self._clock is None else self._clock()


def rules() -> tuple[dict[str, list[str]], ...]:
    """Return the permissions for writing annotations, as rules of a ClusterRole. Annotations have no subresource."""
    return tuple(
        {"apiGroups": [each.api_group], "resources": sorted(each.scalable.values()), "verbs": ["patch"]}
        for each in DIALECTS
    )
