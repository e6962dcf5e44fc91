"""What each node is as far as capacity goes: ready, starting, unready or going."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

from trimtab.autoscaling.groups import GroupOptions, Groups
from trimtab.autoscaling.scale_down.eligibility import unready
from trimtab.autoscaling.scale_up.standing_in import STARTING
from trimtab.autoscaling.template.taints import TO_BE_DELETED, starts_up
from trimtab.kube.objects import Node

_NONE = GroupOptions()


class Readiness(StrEnum):
    """What a node is, as far as capacity goes."""

    READY = "Ready"
    UNREADY = "Unready"
    """It is there and its Ready condition does not say True."""
    STARTING = "Starting"
    """It is there and not usable yet: young, or with a startup taint. It counts as on its way."""
    GOING = "Going"
    """It is being deleted, or has the taint of those that are."""


def readiness(
    nodes: Mapping[str, Node], groups: Groups, *, now: float, startup: Collection[str] = ()
) -> dict[str, Readiness]:
    """What each node is, by name; those of no group as well.

    Args:
        nodes: by name.
        groups: of the same snapshot: a group may give its nodes another time to start.
        now: seconds since the epoch.
        startup: keys of startup taints (``spec.startupTaints``), beside those with upstream's prefixes.
    """
    found = {}
    for name, node in nodes.items():
        group = groups.group_of(name)
        found[name] = standing(node, _NONE if group is None else group.options, now=now, startup=startup)
    return found


def standing(node: Node, options: GroupOptions, *, now: float, startup: Collection[str]) -> Readiness:
    """What one node is.

    A node starts for ``maxnodestartuptime`` at most, from its creation on: upstream's rule, by which one that is not
    ready after it counts as unready, and one that keeps its startup taint does so too.
    """
    if node.deleted is not None or any(taint.key == TO_BE_DELETED for taint in node.taints):
        return Readiness.GOING
    unwell = unready(node) or any(starts_up(taint, startup) for taint in node.taints)
    if node.conditions and not unwell:
        return Readiness.READY
    limit = STARTING if options.startup_seconds is None else options.startup_seconds
    if node.created is not None and now - node.created < limit:
        return Readiness.STARTING
    return Readiness.UNREADY if unwell else Readiness.READY
