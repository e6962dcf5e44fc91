"""Which machines belong to which set, and whether a set may be scaled at all: the same in both APIs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from trimtab.autoscaling.groups.keys import PAUSED
from trimtab.kube.objects import AnyMachine, AnyMachineSet, OwnerReference

M = TypeVar("M", bound=AnyMachine)


def machines_by_owner(machines: Iterable[M], api_group: str) -> dict[tuple[str, str], list[M]]:
    """Machines by kind and ``namespace/name`` of their owner; those without one are left out.

    By name and not by UID, as both APIs adopt machines again after a set was restored from a backup.
    """
    found: dict[tuple[str, str], list[M]] = {}
    for machine in machines:
        owner = owner_of(machine, api_group)
        if owner is not None:
            found.setdefault((owner.kind, f"{machine.namespace}/{owner.name}"), []).append(machine)
    return found


def owner_of(owned: AnyMachine | AnyMachineSet, api_group: str) -> OwnerReference | None:
    """The owner of that API: the controller, or the first where none is marked as one."""
    owners = [
        owner
        for owner in owned.owners
        if owner.name and (not owner.api_version or owner.api_version.partition("/")[0] == api_group)
    ]
    return next((owner for owner in owners if owner.controller), owners[0] if owners else None)


def why_paused(source: AnyMachineSet) -> str:
    """Why a set must not be scaled at present; empty where it may."""
    if source.deleted is not None:
        return "it is being deleted"
    if source.paused:
        return "spec.paused is true"
    return f"it has the annotation {PAUSED}" if PAUSED in source.annotations else ""
