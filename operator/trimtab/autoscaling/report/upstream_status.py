"""The document that upstream's autoscaler keeps in its status ConfigMap, made from a pass: pure.

Fields and words are upstream's (``pkg/clusterstate/api``), so that tools which read it go on working; what trimtab has
to say beyond them stands in the ClusterAutoscaler's own status. Upstream's cluster-wide scale-up also knows Needed and
NotNeeded; nobody sets them there, nor here.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trimtab.api.bounds import plural, short
from trimtab.api.plan import rfc3339
from trimtab.autoscaling.groups import NodeGroup
from trimtab.autoscaling.memory.readiness import Readiness
from trimtab.autoscaling.report.metrics import backs_off
from trimtab.autoscaling.report.pass_report import PassReport

MOST_BYTES: Final = 900_000
"""Of the text; a ConfigMap may hold 1 MiB."""

MESSAGE: Final = 200
NEVER: Final = ""

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"


class _Part(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What all parts have: a word for their state, since when, and when that was last looked at."""

    status: str
    last_probe_time: str = NEVER
    last_transition_time: str = NEVER


class Unready(Struct, frozen=True, rename="camel"):
    """Nodes that are not ready."""

    total: int = 0
    resource_unready: int = 0


class Registered(Struct, frozen=True, rename="camel"):
    """Nodes that are there, by state."""

    total: int = 0
    ready: int = 0
    not_started: int = 0
    being_deleted: int = 0
    unready: Unready = Unready()


class NodeCounts(Struct, frozen=True, rename="camel"):
    """Nodes that are there, and those that are asked for and are not."""

    registered: Registered = Registered()
    long_unregistered: int = 0
    unregistered: int = 0


class ClusterHealth(_Part, frozen=True, kw_only=True):
    """Healthy or Unhealthy."""

    node_counts: NodeCounts


class GroupHealth(_Part, frozen=True, kw_only=True):
    """The same of a group, with its sizes."""

    node_counts: NodeCounts
    cloud_provider_target: int
    min_size: int
    max_size: int


class BackoffInfo(Struct, frozen=True, rename="camel"):
    """Why nothing is added to a group."""

    error_code: str
    error_message: str


class ScaleUp(_Part, frozen=True, kw_only=True):
    """InProgress, Backoff (of groups only) or NoActivity."""

    backoff_info: BackoffInfo | None = None


class ScaleDown(_Part, frozen=True, kw_only=True):
    """CandidatesPresent or NoCandidates, and how many."""

    candidates: int = 0


class ClusterWide(Struct, frozen=True, rename="camel"):
    """The whole cluster."""

    health: ClusterHealth
    scale_up: ScaleUp
    scale_down: ScaleDown


class GroupStatus(Struct, frozen=True, rename="camel"):
    """One group."""

    name: str
    health: GroupHealth
    scale_up: ScaleUp
    scale_down: ScaleDown


class UpstreamStatus(Struct, frozen=True, rename="camel"):
    """The document."""

    time: str
    autoscaler_status: Literal["Initializing", "Running"] = "Running"
    message: str = ""
    cluster_wide: ClusterWide | None = None
    node_groups: tuple[GroupStatus, ...] = ()


P = TypeVar("P", bound=_Part)


def upstream_status(report: PassReport, previous: UpstreamStatus | None) -> UpstreamStatus:
    """The document after a pass.

    Args:
        report: the pass.
        previous: the document before it: since when each part is as it is stands there.
    """
    before = previous or UpstreamStatus(time="")
    known = {each.name: each for each in before.node_groups}
    now = rfc3339(report.started)
    if report.error:  # such a pass has seen nothing, or not all
        return replace(before, time=go_time(report.started), message=short(report.error, MESSAGE))
    counts: dict[str, Tally[Readiness]] = {}
    for node, readiness in report.readiness.items():
        counts.setdefault(report.groups.of_node.get(node, ""), Tally())[readiness] += 1
    unneeded = Tally(report.groups.of_node.get(node, "") for node in report.memory.unneeded)
    groups = tuple(
        [
            _group(report, group, counts.get(group.id, Tally()), unneeded[group.id], known.get(group.id), now)
            for group in report.groups.all
        ]
    )
    return UpstreamStatus(
        time=go_time(report.started),
        message=short(report.health.cluster, MESSAGE),
        cluster_wide=_cluster(report, counts, before.cluster_wide, now),
        node_groups=groups,
    )


def text_of(status: UpstreamStatus) -> str:
    """The document in YAML, in as many bytes as a ConfigMap takes: groups for which there is no room are counted."""
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


def read(text: str) -> UpstreamStatus | None:
    """The document that a ConfigMap holds; ``None`` where it is another one's or no such document."""
    try:
        return msgspec.yaml.decode(text, type=UpstreamStatus)
    except msgspec.DecodeError:
        return None


def same_story(old: UpstreamStatus | None, new: UpstreamStatus) -> bool:
    """Whether nothing has changed but times at which things were looked at."""
    return old is not None and _timeless(old) == _timeless(new)


def go_time(seconds: float) -> str:
    """A time as Go prints it, which upstream writes where others have RFC 3339."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%d %H:%M:%S +0000 UTC")


def _cluster(
    report: PassReport, counts: Mapping[str, Tally[Readiness]], before: ClusterWide | None, now: str
) -> ClusterWide:
    every: Tally[Readiness] = Tally()
    for tally in counts.values():
        every.update(tally)
    upcoming = sum(group.upcoming for group in report.groups.all)
    given_up = sum(record.given_up for record in report.memory.groups.values())
    unneeded = len(report.memory.unneeded)
    return ClusterWide(
        health=_since(
            ClusterHealth(
                status=UNHEALTHY if report.health.cluster else HEALTHY, node_counts=_counts(every, upcoming, given_up)
            ),
            None if before is None else before.health,
            now,
        ),
        scale_up=_since(
            ScaleUp(status="InProgress" if report.memory.scale_ups else "NoActivity"),
            None if before is None else before.scale_up,
            now,
        ),
        scale_down=_since(_down(unneeded), None if before is None else before.scale_down, now),
    )


def _group(
    report: PassReport,
    group: NodeGroup,
    counts: Tally[Readiness],
    unneeded: int,
    before: GroupStatus | None,
    now: str,
) -> GroupStatus:
    health = GroupHealth(
        status=UNHEALTHY if group.id in report.health.groups else HEALTHY,
        node_counts=_counts(counts, group.upcoming, report.memory.record(group.id).given_up),
        cloud_provider_target=group.target,
        min_size=group.minimum,
        max_size=group.maximum,
    )
    return GroupStatus(
        name=group.id,
        health=_since(health, None if before is None else before.health, now),
        scale_up=_since(_up(report, group), None if before is None else before.scale_up, now),
        scale_down=_since(_down(unneeded), None if before is None else before.scale_down, now),
    )


def _up(report: PassReport, group: NodeGroup) -> ScaleUp:
    if backs_off(report, group):
        error = report.memory.record(group.id).last_error
        info = None if error is None else BackoffInfo(short(error.reason, 128), short(error.message, MESSAGE))
        return ScaleUp(status="Backoff", backoff_info=info)
    return ScaleUp(status="InProgress" if group.id in report.memory.scale_ups else "NoActivity")


def _down(unneeded: int) -> ScaleDown:
    return ScaleDown(status="CandidatesPresent" if unneeded else "NoCandidates", candidates=unneeded)


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


def _since(part: P, before: _Part | None, now: str) -> P:
    """The part, looked at now, and since when it has its word."""
    same = before is not None and before.status == part.status and before.last_transition_time
    return replace(part, last_probe_time=now, last_transition_time=same or now)


def _timeless(status: UpstreamStatus) -> UpstreamStatus:
    wide = status.cluster_wide
    return replace(
        status,
        time="",
        cluster_wide=None
        if wide is None
        else ClusterWide(_unprobed(wide.health), _unprobed(wide.scale_up), _unprobed(wide.scale_down)),
        node_groups=tuple(
            [
                GroupStatus(each.name, _unprobed(each.health), _unprobed(each.scale_up), _unprobed(each.scale_down))
                for each in status.node_groups
            ]
        ),
    )


def _unprobed(part: P) -> P:
    return replace(part, last_probe_time=NEVER)
