"""Waiting until a cluster has come to rest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final

from trimtab.kube.api import Unreachable
from trimtab.kube.resources import NODES
from trimtab.local import nodes
from trimtab.local.cluster import LocalCluster
from trimtab.local.errors import LocalError
from trimtab.local.furniture import LEASES
from trimtab.local.manifests import Owner
from trimtab.local.progress import Progress
from trimtab.local.versions import CONTROLLER_MANAGER, KWOK, SCHEDULER

STALLED: Final = 120.0
"""Seconds without any progress after which nothing more is expected. There is no limit on the whole: a small machine
takes its time, and while something moves it is right to wait."""


def await_nodes(cluster: LocalCluster, names: Set[str], progress: Progress) -> None:
    """Wait until these nodes are Ready and kwok plays them, where components run that make them so."""
    settings = cluster.record().settings
    if not names or KWOK not in settings.components or not settings.untaints_nodes:
        return

    def count() -> tuple[int, int]:
        able = {live["metadata"]["name"] for live in _list(cluster, NODES.path()) if nodes.ready(live)}
        played = {lease["metadata"]["name"] for lease in _list(cluster, LEASES)}
        return len(names & able & played), len(names)

    _await(count, "nodes are Ready", progress)


def await_owners(cluster: LocalCluster, owners: Sequence[Owner], progress: Progress) -> None:
    """Wait until every pod of the owners runs, where components run that make them so."""
    needed = {CONTROLLER_MANAGER, KWOK} | ({SCHEDULER} if any(o.workload.via == "scheduler" for o in owners) else set())
    if not owners or not needed <= set(cluster.record().settings.components):
        return
    wanted = {(owner.resource, owner.namespace, owner.name) for owner in owners}
    kinds = {owner.resource.kind: owner.resource for owner in owners}

    def count() -> tuple[int, int]:
        sums: Counter[str] = Counter()
        for resource in kinds.values():
            for live in _list(cluster, resource.path()):
                if (resource, live["metadata"]["namespace"], live["metadata"]["name"]) in wanted:
                    done, all_ = running(resource.kind, live)
                    sums.update(done=done, all=all_)
        return sums["done"], sums["all"]

    _await(count, "pods run", progress)


def running(kind: str, live: Mapping[str, Any]) -> tuple[int, int]:
    """How many pods of an owner run (of a Job: ran), and how many should."""
    spec, status = live.get("spec", {}), live.get("status", {})
    match kind:
        case "Pod":
            return int(status.get("phase") in ("Running", "Succeeded")), 1
        case "DaemonSet":
            # Before the controller has looked, it wants none: that is not the same as having none to want.
            known = status.get("observedGeneration", 0) > 0
            return status.get("numberReady", 0), status.get("desiredNumberScheduled", 0) if known else 1
        case "Job":
            return status.get("succeeded", 0), spec.get("completions", 1)
        case _:
            return status.get("readyReplicas", 0), spec.get("replicas", 1)


def _list(cluster: LocalCluster, path: str) -> list[dict[str, Any]]:
    listed = cluster.client.request("GET", path, params={"resourceVersion": "0"}, timeout=120)
    items: list[dict[str, Any]] = listed["items"]
    return items


def _await(count: Callable[[], tuple[int, int]], what: str, progress: Progress) -> None:
    done, all_ = _try(count, before=(0, 1))
    if done == all_:
        return
    with progress.task(what, total=all_) as task:
        task.advance(done)
        moved = time.monotonic()
        while done < all_:
            if time.monotonic() - moved > STALLED:
                raise LocalError(f"{done:,} of {all_:,} {what}, and for {STALLED:.0f} s no more")
            before, began = done, time.monotonic()
            done, all_ = _try(count, before=(done, all_))
            # A list of thousands costs the API server more than it tells us: look seldom where a look is dear.
            time.sleep(max(0.2, 3 * (time.monotonic() - began)))
            if done != before:
                moved = time.monotonic()
                task.advance(done - before)
                task.expect(all_)


def _try(count: Callable[[], tuple[int, int]], *, before: tuple[int, int]) -> tuple[int, int]:
    try:
        return count()
    except Unreachable:  # an API server under load may take longer to answer than we wait
        return before
