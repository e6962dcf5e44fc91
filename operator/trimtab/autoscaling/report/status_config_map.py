"""Writes upstream's status ConfigMap, which is built from iteration reports.

It is written when it changes, and otherwise once a minute.
"""

from __future__ import annotations

import logging
from collections import Counter as Tally
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trimtab.api.bounds import plural
from trimtab.api.plan import rfc3339
from trimtab.autoscaling.cluster_state.readiness import Readiness, count_by_readiness
from trimtab.autoscaling.groups import NodeGroup
from trimtab.autoscaling.report.iteration_report import IterationReport
from trimtab.autoscaling.report.metrics import backs_off
from trimtab.autoscaling.report.status import REFRESH_SECONDS
from trimtab.cluster.shared_snapshot import in_thread
from trimtab.controller.latest_writer import LatestWriter
from trimtab.kube.api import Api, ApiError, NotFound, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.errors import InputError
from trimtab.kube.events.event import truncate
from trimtab.kube.resources import CONFIG_MAPS
from trimtab.kube.retry import Backoff
from trimtab.kube.verbs import create, get, merge_patch
from trimtab.kube.wire.files.strict_yaml import load_all

MOST_BYTES: Final = 900_000
"""Maximum size of the document in bytes. A ConfigMap may contain 1 MiB."""

MESSAGE: Final = 200
NEVER: Final = ""

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"


class _StatusPart(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The fields that all parts share: a state, the time at which it began, and the time of the last probe."""

    status: str
    last_probe_time: str = NEVER
    last_transition_time: str = NEVER


class Unready(Struct, frozen=True, rename="camel"):
    """The number of registered nodes that are not ready."""

    total: int = 0
    resource_unready: int = 0


class Registered(Struct, frozen=True, rename="camel"):
    """The numbers of registered nodes by state."""

    total: int = 0
    ready: int = 0
    not_started: int = 0
    being_deleted: int = 0
    unready: Unready = Unready()


class NodeCounts(Struct, frozen=True, rename="camel"):
    """The numbers of registered nodes, and of requested nodes that have not registered."""

    registered: Registered = Registered()
    long_unregistered: int = 0
    unregistered: int = 0


class ClusterHealth(_StatusPart, frozen=True, kw_only=True):
    """The health of the cluster: Healthy or Unhealthy."""

    node_counts: NodeCounts


class GroupHealth(_StatusPart, frozen=True, kw_only=True):
    """The health of a node group (Healthy or Unhealthy), and its sizes."""

    node_counts: NodeCounts
    cloud_provider_target: int
    min_size: int
    max_size: int


class BackoffInfo(Struct, frozen=True, rename="camel"):
    """The reason why scale-ups of a node group are in backoff."""

    error_code: str
    error_message: str


class ScaleUpActivity(_StatusPart, frozen=True, kw_only=True):
    """The scale-up activity: InProgress, NoActivity, or Backoff for node groups."""

    backoff_info: BackoffInfo | None = None


class ScaleDownActivity(_StatusPart, frozen=True, kw_only=True):
    """The scale-down activity (CandidatesPresent or NoCandidates), and the number of candidates."""

    candidates: int = 0


class ClusterWide(Struct, frozen=True, rename="camel"):
    """The status of the whole cluster."""

    health: ClusterHealth
    scale_up: ScaleUpActivity
    scale_down: ScaleDownActivity


class GroupStatus(Struct, frozen=True, rename="camel"):
    """The status of a node group."""

    name: str
    health: GroupHealth
    scale_up: ScaleUpActivity
    scale_down: ScaleDownActivity


class UpstreamStatus(Struct, frozen=True, rename="camel"):
    """The YAML document in the ConfigMap."""

    time: str
    autoscaler_status: Literal["Initializing", "Running"] = "Running"
    message: str = ""
    cluster_wide: ClusterWide | None = None
    node_groups: tuple[GroupStatus, ...] = ()


Part = TypeVar("Part", bound=_StatusPart)


def upstream_status(report: IterationReport, previous: UpstreamStatus | None) -> UpstreamStatus:
    """Return the status document after an iteration.

    Args:
        report: the iteration's report.
        previous: the document before the iteration, with the transition times of its parts.
    """
    before = previous or UpstreamStatus(time="")
    known = {each.name: each for each in before.node_groups}
    now = rfc3339(report.started)
    if report.error:  # the report of a failed iteration is incomplete
        return replace(before, time=go_time(report.started), message=truncate(report.error, MESSAGE))
    counts = count_by_readiness(report.groups, report.readiness)
    unneeded = Tally(report.groups.of_node.get(node, "") for node in report.state.unneeded)
    groups = tuple(
        [
            _group(report, group, counts[group.id], unneeded[group.id], known.get(group.id), now)
            for group in report.groups.all
        ]
    )
    return UpstreamStatus(
        time=go_time(report.started),
        message=truncate(report.health.cluster, MESSAGE),
        cluster_wide=_cluster(report, counts, before.cluster_wide, now),
        node_groups=groups,
    )


def encode_status(status: UpstreamStatus) -> str:
    """Encode the document as YAML, within the size limit of a ConfigMap.

    Node groups that do not fit are omitted and counted.
    """
    text = msgspec.yaml.encode(status)
    groups = status.node_groups
    while len(text) > MOST_BYTES:
        kept = len(status.node_groups) * MOST_BYTES // len(text) - 1
        status = replace(
            status,
            node_groups=groups[:kept],
            message=f"{plural(len(groups) - kept, 'node group')} omitted",
        )
        text = msgspec.yaml.encode(status)
    return text.decode()


def decode_status(text: str) -> UpstreamStatus | None:
    """Decode the document in a ConfigMap. Return ``None`` if the text is not such a document."""
    try:
        contents = load_all(text.encode(errors="replace"))
        return msgspec.convert(contents[0] if len(contents) == 1 else None, UpstreamStatus)
    except (InputError, msgspec.ValidationError):
        return None


def materially_equal(old: UpstreamStatus | None, new: UpstreamStatus) -> bool:
    """Return whether two documents differ only in their probe times."""
    return old is not None and _without_probe_times(old) == _without_probe_times(new)


def go_time(seconds: float) -> str:
    """Format a time as Go's ``time.Time.String()`` does; upstream writes it instead of RFC 3339."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%d %H:%M:%S +0000 UTC")


def _cluster(
    report: IterationReport, counts: Mapping[str, Tally[Readiness]], before: ClusterWide | None, now: str
) -> ClusterWide:
    every: Tally[Readiness] = Tally()
    for tally in counts.values():
        every.update(tally)
    upcoming = sum(group.upcoming for group in report.groups.all)
    given_up = sum(record.given_up for record in report.state.groups.values())
    unneeded = len(report.state.unneeded)
    return ClusterWide(
        health=_with_transition_time(
            ClusterHealth(
                status=UNHEALTHY if report.health.cluster else HEALTHY, node_counts=_counts(every, upcoming, given_up)
            ),
            None if before is None else before.health,
            now,
        ),
        scale_up=_with_transition_time(
            ScaleUpActivity(status="InProgress" if report.state.scale_ups else "NoActivity"),
            None if before is None else before.scale_up,
            now,
        ),
        scale_down=_with_transition_time(
            _scale_down_activity(unneeded), None if before is None else before.scale_down, now
        ),
    )


def _group(
    report: IterationReport,
    group: NodeGroup,
    counts: Tally[Readiness],
    unneeded: int,
    before: GroupStatus | None,
    now: str,
) -> GroupStatus:
    health = GroupHealth(
        status=UNHEALTHY if group.id in report.health.groups else HEALTHY,
        node_counts=_counts(counts, group.upcoming, report.state.record(group.id).given_up),
        cloud_provider_target=group.target,
        min_size=group.minimum,
        max_size=group.maximum,
    )
    return GroupStatus(
        name=group.id,
        health=_with_transition_time(health, None if before is None else before.health, now),
        scale_up=_with_transition_time(
            _scale_up_activity(report, group), None if before is None else before.scale_up, now
        ),
        scale_down=_with_transition_time(
            _scale_down_activity(unneeded), None if before is None else before.scale_down, now
        ),
    )


def _scale_up_activity(report: IterationReport, group: NodeGroup) -> ScaleUpActivity:
    if backs_off(report, group):
        error = report.state.record(group.id).last_error
        info = None if error is None else BackoffInfo(truncate(error.reason, 128), truncate(error.message, MESSAGE))
        return ScaleUpActivity(status="Backoff", backoff_info=info)
    return ScaleUpActivity(status="InProgress" if group.id in report.state.scale_ups else "NoActivity")


def _scale_down_activity(unneeded: int) -> ScaleDownActivity:
    return ScaleDownActivity(status="CandidatesPresent" if unneeded else "NoCandidates", candidates=unneeded)


def _counts(counts: Tally[Readiness], upcoming: int, given_up: int) -> NodeCounts:
    return NodeCounts(
        registered=Registered(
            total=sum(counts.values()),
            ready=counts[Readiness.READY],
            not_started=counts[Readiness.STARTING],
            being_deleted=counts[Readiness.GOING],
            unready=Unready(total=counts[Readiness.UNREADY]),
        ),
        long_unregistered=given_up,
        unregistered=upcoming,
    )


def _with_transition_time(part: Part, before: _StatusPart | None, now: str) -> Part:
    """Return the part with its probe time and transition time set."""
    same = before is not None and before.status == part.status and before.last_transition_time
    return replace(part, last_probe_time=now, last_transition_time=same or now)


def _without_probe_times(status: UpstreamStatus) -> UpstreamStatus:
    wide = status.cluster_wide
    return replace(
        status,
        time="",
        cluster_wide=None
        if wide is None
        else ClusterWide(
            _without_probe_time(wide.health), _without_probe_time(wide.scale_up), _without_probe_time(wide.scale_down)
        ),
        node_groups=tuple(
            [
                GroupStatus(
                    each.name,
                    _without_probe_time(each.health),
                    _without_probe_time(each.scale_up),
                    _without_probe_time(each.scale_down),
                )
                for each in status.node_groups
            ]
        ),
    )


def _without_probe_time(part: Part) -> Part:
    return replace(part, last_probe_time=NEVER)


log = logging.getLogger(__name__)

NAME: Final = "cluster-autoscaler-status"
KEY: Final = "status"
_ONCE: Final = Backoff(attempts=1)
LAST_UPDATED: Final = "cluster-autoscaler.kubernetes.io/last-updated"


class StatusConfigMap(LatestWriter[IterationReport | None]):
    """Writes the ConfigMap ``cluster-autoscaler-status`` from the report of the latest iteration.

    The first write of a process reads the ConfigMap for the transition times of its parts. Each further write is one
    patch. It is skipped if only probe times have changed and the last write is less than a minute old. A failed write
    is retried after the next iteration.

    Args:
        api: the API server.
        namespace: the operator's namespace.
        clock: the clock.
        name: name of the ConfigMap.
    """

    def __init__(self, api: Api, *, namespace: str, clock: Clock = SYSTEM_CLOCK, name: str = NAME) -> None:
        super().__init__(clock, "the status ConfigMap", None, retry=_ONCE, retried=())
        self._api = api
        self._namespace = namespace
        self._name = name
        self._known: UpstreamStatus | None = None
        self._read = False
        self._finished: float | None = None

    def _due(self) -> bool:
        return self.value is not self._written

    async def _send(self, value: IterationReport | None) -> None:
        if value is None:
            return
        if not self._read:
            await self._read_current()
        status = upstream_status(value, self._known)
        fresh = self._finished is not None and value.finished - self._finished < REFRESH_SECONDS
        if fresh and materially_equal(self._known, status):
            return
        await self._patch(status, value)
        self._known, self._finished = status, value.finished

    def _failed(self, error: Exception, *, retried: bool) -> None:  # noqa: ARG002  the next iteration retries
        expected = isinstance(error, ApiError | Unreachable)
        message = "Failed to write ConfigMap %s/%s; retrying after the next iteration: %s"
        log.warning(message, self._namespace, self._name, error, exc_info=None if expected else error)

    async def _read_current(self) -> None:
        try:
            found = await get(self._api, CONFIG_MAPS, self._name, namespace=self._namespace)
        except NotFound:
            pass
        else:
            self._known = decode_status(str((found.get("data") or {}).get(KEY, "")))
        self._read = True

    async def _patch(self, status: UpstreamStatus, report: IterationReport) -> None:
        text = await in_thread(partial(encode_status, status))  # slow with hundreds of groups
        body: dict[str, Any] = {
            "metadata": {"annotations": {LAST_UPDATED: go_time(report.started)}},
            "data": {KEY: text},
        }
        try:
            await merge_patch(self._api, CONFIG_MAPS, self._name, body, namespace=self._namespace)
        except NotFound:
            body["metadata"]["name"] = self._name
            await create(self._api, CONFIG_MAPS, body, namespace=self._namespace)
