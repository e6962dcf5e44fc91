"""Which annotations a target gets and loses, and how that is written without overwriting anybody."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.autoscaling.groups.keys import CAPACITY, MAX_SIZE, MIN_SIZE, OWNER
from trimtab.autoscaling.machine_autoscalers.capacity import COPIES, Changes, copies, without_copies
from trimtab.kube.objects import AnyMachineSet
from trimtab.kube.objects.machine import MACHINE_API

Operation = dict[str, Any]
"""One of RFC 6902."""


def wanted(source: AnyMachineSet, autoscaler: MachineAutoscaler, *, adopt: bool = False) -> Changes:
    """What differs on a target from what its MachineAutoscaler says; empty where nothing does.

    Args:
        source: the target.
        autoscaler: the one that has it.
        adopt: whether OpenShift's operator had it until now: see :func:`.capacity.copies`.
    """
    prefix = f"{source.api_group}/"
    said = {
        prefix + MIN_SIZE: str(autoscaler.spec.min_replicas),
        prefix + MAX_SIZE: str(autoscaler.spec.max_replicas),
        OWNER: autoscaler.key,
    }
    changes: Changes = {key: text for key, text in said.items() if source.annotations.get(key) != text}
    if source.api_group == MACHINE_API:
        had = source.annotations.get(OWNER) == autoscaler.key and COPIES not in source.annotations
        changes |= copies(source.annotations, adopt=adopt and had)
    return changes


def is_limit(changes: Iterable[str]) -> bool:
    """Whether limits, or whose they are, are among the annotations that change; capacities change by themselves."""
    return any(key != COPIES and not key.startswith(CAPACITY) for key in changes)


def released(source: AnyMachineSet, owner: str) -> Changes:
    """What to remove from a target that a MachineAutoscaler (``namespace/name``) no longer has.

    Only where the annotation still names that one: else the limits are somebody else's by now.
    """
    if source.annotations.get(OWNER) != owner:
        return {}
    prefix = f"{source.api_group}/"
    keys = (prefix + MIN_SIZE, prefix + MAX_SIZE, OWNER)
    changes: Changes = {key: None for key in keys if key in source.annotations}
    return changes | (without_copies(source.annotations) if source.api_group == MACHINE_API else {})


def patches(source: AnyMachineSet, changes: Mapping[str, str | None]) -> tuple[list[Operation], ...]:
    """The changes as JSON patches, to be tried one after the other until one is taken.

    Each tests that the object is the one that was read, and that what it changes is still as it was read: so nothing is
    overwritten that somebody wrote meanwhile, and changes elsewhere in the object are no conflict. There are two where
    nobody knows whether the object has any annotation at all: only such ones are read as somebody gives a meaning to.
    """
    whole: list[Operation] = [{"op": "test", "path": "/metadata/uid", "value": source.uid}] if source.uid else []
    single: list[Operation] = [*whole]
    for key in sorted(changes):
        path = f"/metadata/annotations/{_escaped(key)}"
        before, after = source.annotations.get(key), changes[key]
        # A test against null holds where there is nothing.
        single.append({"op": "test", "path": path, "value": before})
        single.append({"op": "remove", "path": path} if after is None else {"op": "add", "path": path, "value": after})
    if source.annotations:
        return (single,)
    first: list[Operation] = [
        *whole,
        {"op": "test", "path": "/metadata/annotations", "value": None},
        {"op": "add", "path": "/metadata/annotations", "value": {key: changes[key] for key in sorted(changes)}},
    ]
    return first, single


def _escaped(key: str) -> str:
    """A key as a part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def told(source: AnyMachineSet, changes: Mapping[str, str | None]) -> str:
    """The changes in words, each with what was there before."""
    parts = []
    for key in sorted(changes):
        if key == COPIES:
            continue
        before, after = source.annotations.get(key), changes[key]
        if after is None:
            parts.append(f"{key} removed")
        else:
            parts.append(f"{key}={after}" + (f" (was {before})" if before is not None else ""))
    return ", ".join(parts)
