"""Whether the cluster, and each group, is well enough to be scaled.

Where many nodes are not ready at once, what is wrong is rather the network, or what watches it, than the nodes: to
remove them, or to add others, would make it worse. Upstream halts everything then; here groups halt themselves, and
only a cluster that is unwell as a whole halts everything. What is remembered stays as it is meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.autoscaling.groups import Groups
from trimtab.autoscaling.memory.backoff import backs_off, clock
from trimtab.autoscaling.memory.readiness import Readiness
from trimtab.autoscaling.memory.state import GroupRecord, State

_SILENT: Final = frozenset({reasons.SCALE_UNREACHABLE, reasons.SCALE_TIMED_OUT})


class HealthSettings(Struct, frozen=True):
    """When so many nodes are not ready that nothing is done; both must be exceeded.

    Attributes:
        ok_total_unready_count: so many unready nodes are always all right (upstream's flag of that name).
        max_total_unready_percentage: percent of all nodes that may be unready (upstream's flag of that name).
    """

    ok_total_unready_count: int = 3
    max_total_unready_percentage: float = 45.0


class Health(Struct, frozen=True):
    """Whether the cluster, and each group, is well enough to be scaled.

    Attributes:
        cluster: why the whole cluster is not, in words; empty where it is.
        groups: why a group is not, by its id; groups that are well are not in it.
    """

    cluster: str = ""
    groups: Mapping[str, str] = {}


DEFAULTS: Final = HealthSettings()


def health(
    groups: Groups,
    standing: Mapping[str, Readiness],
    state: State,
    *,
    now: float,
    settings: HealthSettings = DEFAULTS,
) -> Health:
    """Whether the cluster and its groups are well.

    Nodes that start and nodes that go are neither ready nor unready; they count among all.

    Args:
        groups: of the snapshot.
        standing: what each node is, by name; nodes of no group count for the cluster.
        state: what is remembered after :func:`~trimtab.autoscaling.memory.advance`.
        now: seconds since the epoch.
        settings: how many may be unready.
    """
    found = {}
    for group in groups.all:
        words = _unwell((standing[name] for name in group.nodes if name in standing), settings, "of the group")
        if words:
            found[group.id] = words
        elif silent := _silent(state.record(group.id), now):
            found[group.id] = silent
    return Health(_unwell(standing.values(), settings, "of the cluster"), found)


def _unwell(standing: Iterable[Readiness], settings: HealthSettings, what: str) -> str:
    counted = Counter(standing)
    unready, everyone = counted[Readiness.UNREADY], counted.total()
    percentage = settings.max_total_unready_percentage
    if unready <= settings.ok_total_unready_count or unready * 100 <= everyone * percentage:
        return ""
    allowed = f"{settings.ok_total_unready_count}, or {percentage:g}%, may be"
    return f"{unready} of the {everyone} nodes {what} are not ready; {allowed}"


def _silent(record: GroupRecord, now: float) -> str:
    """Why a group is left alone whose provider did not answer when it was last asked; empty where it did."""
    error = record.last_error
    if error is None or record.backoff_until is None or error.reason not in _SILENT or not backs_off(record, now):
        return ""
    until = clock(record.backoff_until)
    return f"its provider did not answer ({error.reason}: {error.message}); it is left alone until {until}"
