"""What nodes of a MachineSet are like, copied from the keys of OpenShift's machine controllers to upstream's.

Those controllers annotate MachineSets with ``machine.openshift.io/vCPU`` and so on; autoscalers read
``capacity.cluster-autoscaler.kubernetes.io/…``. OpenShift's operator copies them when limits differ and at no other
time, so a set whose machines become larger is planned with small ones. Here they are copied whenever they differ.

What is copied is written down on the set (:data:`COPIES`). By that record, and by nothing else, one that we set is told
from one that somebody else set: ours follows what it is a copy of, and goes with it; all others are left alone, for
whoever says ``capacity.…/cpu`` by hand knows something that the machine controller does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from trimtab.autoscaling.groups.keys import CAPACITY
from trimtab.kube.objects.machine import MACHINE_API
from trimtab.kube.rules.quantity import QuantityError, resource_amount

COPIES: Final = "trimtab.dev/capacity-copies"
"""On a MachineSet: which capacities are copies of ours, ``cpu=4,memory=16384Mi``."""

NVIDIA: Final = "nvidia.com/gpu"
"""What OpenShift's ``machine.openshift.io/GPU`` counts, as its operator has it."""

_COUNT: Final = re.compile(r"[0-9]{1,9}")
NAMES: Final = ("cpu", "memory", "gpu-count", "gpu-type", "maxPods")

Changes = dict[str, str | None]
"""Annotations to set, and to remove (``None``), by key."""


def copies(annotations: Mapping[str, str], *, adopt: bool = False) -> Changes:
    """What to change so that the copies are right.

    Args:
        annotations: of a MachineSet of the Machine API.
        adopt: whether capacities that equal what they would be copied from are taken for copies though no record says
            so: OpenShift's operator makes such ones, and keeps no record.
    """
    ours = recorded(annotations)
    said = _said(annotations)
    changes: Changes = {}
    kept: dict[str, str] = {}
    for name in NAMES:
        key = CAPACITY + name
        there, wanted = annotations.get(key) or None, said.get(name)
        is_ours = there is not None and ours.get(name) == there
        if wanted is None:
            if is_ours:
                changes[key] = None
        elif there is None or is_ours:
            if there != wanted:
                changes[key] = wanted
            kept[name] = wanted
        elif adopt and _same(name, there, wanted):
            kept[name] = there
    record = ",".join(f"{name}={text}" for name, text in kept.items())
    if record != annotations.get(COPIES, ""):
        changes[COPIES] = record or None
    return changes


def without_copies(annotations: Mapping[str, str]) -> Changes:
    """What to remove so that no copy of ours is left."""
    changes: Changes = {
        CAPACITY + name: None
        for name, text in recorded(annotations).items()
        if name in NAMES and annotations.get(CAPACITY + name) == text
    }
    return changes | ({COPIES: None} if COPIES in annotations else {})


def recorded(annotations: Mapping[str, str]) -> dict[str, str]:
    """The copies that we have made, by name; a record that somebody has spoilt says nothing."""
    parts = (part.partition("=") for part in annotations.get(COPIES, "").split(","))
    return {name: text for name, equals, text in parts if equals}


def _said(annotations: Mapping[str, str]) -> dict[str, str]:
    """What the machine controller says, in upstream's words; what is no number is nobody's to copy."""

    def text(name: str) -> str:
        found = annotations.get(f"{MACHINE_API}/{name}", "")
        return found if _COUNT.fullmatch(found) and int(found) else ""

    found = {"cpu": text("vCPU"), "memory": text("memoryMb"), "gpu-count": text("GPU"), "maxPods": text("maxPods")}
    if found["memory"]:
        found["memory"] += "Mi"  # it is in MiB, whatever the name says
    if found["gpu-count"]:
        found["gpu-type"] = NVIDIA
    return {name: value for name, value in found.items() if value}


def _same(name: str, one: str, other: str) -> bool:
    """Whether two texts say the same amount."""
    amount: Callable[[str], object] = str if name == "gpu-type" else lambda text: resource_amount(name, text)
    try:
        return amount(one) == amount(other)
    except QuantityError:
        return False
