"""Computes the annotations to set on or remove from a target, as JSON patches.

The patches never overwrite changes made by other clients.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.autoscaling.groups.annotations import CAPACITY, MAX_SIZE, MIN_SIZE, OWNER
from trimtab.kube.objects import AnyMachineSet
from trimtab.kube.objects.machine import MACHINE_API
from trimtab.kube.rules.quantity import QuantityError, resource_amount

COPIES: Final = "trimtab.dev/capacity-copies"
"""MachineSet annotation with the capacity annotations that trimtab copied, e.g. ``cpu=4,memory=16384Mi``.

The machine controller reports the capacity under its own keys. trimtab copies it to upstream's keys.
"""

NVIDIA: Final = "nvidia.com/gpu"
"""The GPU type of OpenShift's annotation ``machine.openshift.io/GPU``, as in its operator."""

_COUNT: Final = re.compile(r"[0-9]{1,9}")
CAPACITY_NAMES: Final = ("cpu", "memory", "gpu-count", "gpu-type", "maxPods")

Changes = dict[str, str | None]
"""Annotations to set, or to remove (``None``), by key."""


def capacity_changes(annotations: Mapping[str, str], *, adopt: bool = False) -> Changes:
    """Return the changes that bring the copied capacity annotations up to date.

    Args:
        annotations: the annotations of a MachineSet of the Machine API.
        adopt: whether to treat capacity annotations as copied by trimtab if they match their source, although
            :data:`COPIES` does not list them. OpenShift's operator creates such annotations.
    """
    ours = recorded_copies(annotations)
    reported = _reported_capacity(annotations)
    changes: Changes = {}
    kept: dict[str, str] = {}
    for name in CAPACITY_NAMES:
        key = CAPACITY + name
        there, wanted = annotations.get(key) or None, reported.get(name)
        is_ours = there is not None and ours.get(name) == there
        if wanted is None:
            if is_ours:
                changes[key] = None
        elif there is None or is_ours:
            if there != wanted:
                changes[key] = wanted
            kept[name] = wanted
        elif adopt and _same_amount(name, there, wanted):
            kept[name] = there
    record = ",".join(f"{name}={text}" for name, text in kept.items())
    if record != annotations.get(COPIES, ""):
        changes[COPIES] = record or None
    return changes


def removed_copies(annotations: Mapping[str, str]) -> Changes:
    """Return the changes that remove all copied capacity annotations."""
    changes: Changes = {
        CAPACITY + name: None
        for name, text in recorded_copies(annotations).items()
        if name in CAPACITY_NAMES and annotations.get(CAPACITY + name) == text
    }
    return changes | ({COPIES: None} if COPIES in annotations else {})


def recorded_copies(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the copied capacity values by resource name, as recorded in :data:`COPIES`.

    Entries that cannot be parsed are skipped.
    """
    parts = (part.partition("=") for part in annotations.get(COPIES, "").split(","))
    return {name: text for name, equals, text in parts if equals}


def _reported_capacity(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the capacity that the machine controller reports, in upstream's format.

    Values that are not positive integers are omitted.
    """

    def text(name: str) -> str:
        found = annotations.get(f"{MACHINE_API}/{name}", "")
        return found if _COUNT.fullmatch(found) and int(found) else ""

    found = {"cpu": text("vCPU"), "memory": text("memoryMb"), "gpu-count": text("GPU"), "maxPods": text("maxPods")}
    if found["memory"]:
        found["memory"] += "Mi"  # the unit is MiB, despite the name
    if found["gpu-count"]:
        found["gpu-type"] = NVIDIA
    return {name: value for name, value in found.items() if value}


def _same_amount(name: str, one: str, other: str) -> bool:
    """Return whether two strings represent the same amount of a resource."""
    amount: Callable[[str], object] = str if name == "gpu-type" else lambda text: resource_amount(name, text)
    try:
        return amount(one) == amount(other)
    except QuantityError:
        return False


Operation = dict[str, Any]
"""An operation of a JSON patch (RFC 6902)."""


def target_changes(source: AnyMachineSet, autoscaler: MachineAutoscaler, *, adopt: bool = False) -> Changes:
    """Return the changes that make the annotations of a target match its MachineAutoscaler; empty if they do.

    Args:
        source: the target.
        autoscaler: its MachineAutoscaler.
        adopt: whether OpenShift's operator managed the target before; see :func:`capacity_changes`.
    """
    prefix = f"{source.api_group}/"
    reported = {
        prefix + MIN_SIZE: str(autoscaler.spec.min_replicas),
        prefix + MAX_SIZE: str(autoscaler.spec.max_replicas),
        OWNER: autoscaler.key,
    }
    changes: Changes = {key: text for key, text in reported.items() if source.annotations.get(key) != text}
    if source.api_group == MACHINE_API:
        had = source.annotations.get(OWNER) == autoscaler.key and COPIES not in source.annotations
        changes |= capacity_changes(source.annotations, adopt=adopt and had)
    return changes


def changes_limits(changes: Iterable[str]) -> bool:
    """Return whether the changes include limits or the owner, and not only copied capacities."""
    return any(key != COPIES and not key.startswith(CAPACITY) for key in changes)


def release_changes(source: AnyMachineSet, owner: str) -> Changes:
    """Return the changes that remove a MachineAutoscaler's annotations from a former target.

    Args:
        source: the former target.
        owner: ``namespace/name`` of the MachineAutoscaler. If the annotation names another one, nothing is removed.
    """
    if source.annotations.get(OWNER) != owner:
        return {}
    prefix = f"{source.api_group}/"
    keys = (prefix + MIN_SIZE, prefix + MAX_SIZE, OWNER)
    changes: Changes = {key: None for key in keys if key in source.annotations}
    return changes | (removed_copies(source.annotations) if source.api_group == MACHINE_API else {})


def patches_of(source: AnyMachineSet, changes: Mapping[str, str | None]) -> tuple[list[Operation], ...]:
    """Return the changes as JSON patches. The caller tries them in order until the API server accepts one.

    Each patch tests that the object and the annotations to change are unchanged since they were read. So it never
    overwrites a change by another client, and changes elsewhere in the object cause no conflict. There are two patches
    if the object may have no annotations at all, because the cache stores only those that trimtab uses.
    """
    whole: list[Operation] = [{"op": "test", "path": "/metadata/uid", "value": source.uid}] if source.uid else []
    single: list[Operation] = [*whole]
    for key in sorted(changes):
        path = f"/metadata/annotations/{_escaped(key)}"
        before, after = source.annotations.get(key), changes[key]
        # A test against null succeeds if the annotation does not exist.
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
    """Return an annotation key escaped for use in a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def describe_changes(source: AnyMachineSet, changes: Mapping[str, str | None]) -> str:
    """Describe the changes in a message, with the previous values."""
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
