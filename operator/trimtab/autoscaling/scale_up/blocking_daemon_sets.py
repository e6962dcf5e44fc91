"""Finds DaemonSets whose pods use so much of a new node that a pending pod does not fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.plan import Kept
from trimtab.autoscaling.scale_up.messages import STRATEGY
from trimtab.autoscaling.scale_up.pod_classes import PodClass
from trimtab.autoscaling.scale_up.upcoming_nodes import probe_nodes
from trimtab.autoscaling.template.node_template import DAEMON_SET, NodeTemplate, daemon_set_of
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.kube.rules.quantity import format_amount
from trimtab.placement.placer import Placer

MAX_CLASSES: Final = 32
"""Maximum number of pod classes that are checked.

Each check runs the scheduler's filters once, and one class suffices to report a DaemonSet.
"""


def daemon_sets_blocking_pods(
    snapshot: Snapshot, placer: Placer, templates: Iterable[NodeTemplate], found: Sequence[PodClass]
) -> list[Kept]:
    """Return the DaemonSets that leave too little capacity for pending pods, sorted by ``namespace/name``.

    Args:
        snapshot: the cluster state; it is restored afterwards.
        placer: placer on the snapshot.
        templates: node templates of the groups.
        found: pod classes that do not fit on a new node of any group.
    """
    crowded = [each for each in templates if any(map(daemon_set_of, each.pods))]
    some = [each for each in found if any(_would_fit(each.first, template) for template in crowded)][:MAX_CLASSES]
    if not some:
        return []
    entries: dict[str, Kept] = {}
    with probe_nodes(snapshot, map(_without_daemons, crowded)) as slots:
        for each in some:
            mask = placer.feasible(each.first) if each.countable else placer.eligible(each.first)
            for template in crowded:
                if mask[slots[template.group]] and _would_fit(each.first, template):
                    entry = _entry(each.first, template)
                    entries.setdefault(f"{entry.namespace}/{entry.name}", entry)
    return [entries[key] for key in sorted(entries)]


def _without_daemons(template: NodeTemplate) -> NodeTemplate:
    return replace(template, pods=tuple(pod for pod in template.pods if not daemon_set_of(pod)))


def _would_fit(pod: Pod, template: NodeTemplate) -> bool:
    """Return whether a pod does not fit on a new node, but would fit if the node had no DaemonSet pods."""
    free, more = template.free, _without_daemons(template).free
    requests = pod.spec.requests.items()
    return all(amount <= more.get(name, 0) for name, amount in requests if amount) and any(
        amount > free.get(name, 0) for name, amount in requests if amount
    )


def _entry(pod: Pod, template: NodeTemplate) -> Kept:
    """Return the plan entry for the DaemonSet that uses most of the resource that the pod lacks."""
    free = template.free
    missing = [name for name, amount in sorted(pod.spec.requests.items()) if amount > free.get(name, 0)]
    resource = missing[0]
    daemons = [each for each in template.pods if daemon_set_of(each)]
    largest = max(daemons, key=lambda each: (each.spec.requests.get(resource, 0), each.key))
    namespace, _, name = daemon_set_of(largest).partition("/")
    used = format_amount(resource, largest.spec.requests.get(resource, 0))
    allocatable = format_amount(resource, template.node.allocatable.get(resource, 0))
    message = (
        f"takes {used} of {allocatable} {resource} of each new node of {template.group}, "
        f"so that pods such as {pod.key} do not fit"
    )
    return Kept(
        kind=DAEMON_SET,
        namespace=namespace,
        name=name,
        strategy=STRATEGY,
        reason=reasons.DAEMON_SETS_TAKE_ROOM,
        message=message,
    )
