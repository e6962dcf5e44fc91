"""Since when nodes are unneeded, as it is recorded in the cluster: no process need remember it.

There are three places: trimtab's annotation on the node, the ClusterAutoscaler's status, and the value of the soft
taint DeletionCandidateOfClusterAutoscaler, which upstream's autoscaler writes too. Where they differ the latest counts:
each is taken away once the node is needed, but not in the same moment, so an older one may be of an earlier time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.autoscaling.template.taints import DELETION_CANDIDATE
from trimtab.kube.objects import Node

UNNEEDED_SINCE: Final = "trimtab.dev/unneeded-since"
"""On nodes: since when nobody has needed it, RFC 3339."""

_SECONDS: Final = re.compile(r"[0-9]{1,11}")


def recorded(nodes: Iterable[Node], status: ClusterAutoscalerStatus) -> dict[str, float]:
    """Since when nodes are unneeded, by name, in seconds since the epoch; nodes without a record are not in it."""
    in_status = {each.name: each.since.timestamp() for each in status.unneeded}
    found = {}
    for node in nodes:
        times = [_annotated(node), in_status.get(node.name), _tainted(node)]
        known = [time for time in times if time is not None]
        if known:
            found[node.name] = max(known)
    return found


def next_records(unneeded: Iterable[str], records: Mapping[str, float], *, now: float) -> dict[str, float]:
    """What is to be recorded after a pass: nodes that are unneeded keep their time or begin now, all others lose it.

    Args:
        unneeded: the names of the nodes that the pass found unneeded.
        records: what was recorded before it.
        now: seconds since the epoch.

    Returns:
        Since when by name, in the order of names. A time that lies ahead is brought back to now: with it the node
        would wait longer than it was told to.
    """
    return {name: min(records.get(name, now), now) for name in sorted(unneeded)}


def _annotated(node: Node) -> float | None:
    text = node.annotations.get(UNNEEDED_SINCE, "")
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    # Before 1970 is no time that anybody has recorded, and in the year 1 one that cannot be written again.
    return None if time.tzinfo is None or time.timestamp() < 0 else time.timestamp()


def _tainted(node: Node) -> float | None:
    """The taint's value; where that is no time, when the taint was added, if somebody has recorded it."""
    for taint in node.taints:
        if taint.key == DELETION_CANDIDATE:
            return float(taint.value) if _SECONDS.fullmatch(taint.value) else taint.time_added
    return None
