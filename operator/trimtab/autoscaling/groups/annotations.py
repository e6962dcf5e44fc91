"""Defines the annotation keys of groups, machines and nodes, and decodes the sizes and options of a group.

Both machine APIs have the same annotations under their own prefixes. A group uses only the annotations of its own API,
because OpenShift mirrors objects between the two APIs. Invalid values are reported and ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.scalars import parse_go_duration
from trimtab.autoscaling.groups.node_group import GroupOptions, ObjectProblem
from trimtab.kube.objects import AnyMachineSet
from trimtab.kube.objects.machine import CLUSTER_API, MACHINE_API

MIN_SIZE: Final = "cluster-api-autoscaler-node-group-min-size"
MAX_SIZE: Final = "cluster-api-autoscaler-node-group-max-size"
OPTIONS: Final = "autoscaling-options-"
"""Prefix of option annotations, after the prefix of the API."""

OWNER: Final = "autoscaling.openshift.io/machineautoscaler"
"""Annotation of a group: its MachineAutoscaler as ``namespace/name``. OpenShift's operator writes it too."""

PAUSED: Final = "cluster.x-k8s.io/paused"
"""Annotation of a group of either API. With any value, the group must not be scaled."""

DELETE_MACHINE: Final = {
    MACHINE_API: (f"{MACHINE_API}/delete-machine", f"{MACHINE_API}/cluster-api-delete-machine"),
    CLUSTER_API: (f"{CLUSTER_API}/delete-machine",),
}
"""Annotation of a machine, by API. With any non-empty value, the machine is deleted first when replicas are lowered."""

NODES_MACHINE: Final = f"{MACHINE_API}/machine"
"""Annotation of a node: its machine as ``namespace/name``."""

NODES_CLUSTER_MACHINE: Final = f"{CLUSTER_API}/machine"
NODES_CLUSTER_NAMESPACE: Final = f"{CLUSTER_API}/cluster-namespace"
"""Annotations of a node: name and namespace of its Cluster API machine."""

NODES_CLUSTER: Final = f"{CLUSTER_API}/cluster-name"
"""Annotation of a node: name of its Cluster API cluster."""

CAPACITY: Final = "capacity.cluster-autoscaler.kubernetes.io/"
"""Prefix of the annotations that describe a group's nodes."""

PRICE: Final = "trimtab.dev/price"
"""Annotation of a group: the price of one node per hour, e.g. ``0.192``. All groups use the same currency."""

RESERVED: Final = "trimtab.dev/reserved"
"""Annotation of a group: the part of the capacity that is not allocatable, e.g. ``cpu=500m,memory=1Gi``.

Only trimtab uses it.
"""

LEARNED_NODE: Final = "trimtab.dev/learned-node"
"""Annotation of a group: the description of its nodes as JSON.

trimtab writes it, and uses it while the group has no node.
"""

REMOVAL_BACKOFF: Final = "trimtab.dev/removal-backoff"
"""Annotation of a group: the end of its removal backoff, and the required age of deletion annotations, as JSON.

trimtab writes it after the group's controller deleted a machine without a deletion annotation.
"""

REMOVAL_IN_PROGRESS: Final = "trimtab.dev/removal-in-progress"
"""Annotation of a group: the size change in progress and the machines that may be deleted, as JSON.

trimtab writes it before it lowers the size, and removes it after it has determined which machines were deleted.
"""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_NUMBER: Final = re.compile(r"[0-9]*[.]?[0-9]+|[0-9]+[.]")
_INT32: Final = 2**31 - 1


class AnnotatedObject(Protocol):
    """An object with annotations, such as a MachineSet."""

    @property
    def api_group(self) -> str:
        """Return the API group."""
        ...

    @property
    def kind(self) -> str:
        """Return the kind."""
        ...

    @property
    def namespace(self) -> str:
        """Return the namespace."""
        ...

    @property
    def name(self) -> str:
        """Return the name."""
        ...

    @property
    def annotations(self) -> Mapping[str, str]:
        """Return the annotations."""
        ...


class SizeLimits(Struct, frozen=True):
    """The minimum and maximum size of a group."""

    minimum: int
    maximum: int


def object_problem(source: AnnotatedObject, reason: str, message: str) -> ObjectProblem:
    """Return an :class:`ObjectProblem` for a group's object."""
    return ObjectProblem(source.kind, source.namespace, source.name, reason, message)


def annotated_limits(source: AnnotatedObject) -> SizeLimits | ObjectProblem | None:
    """Return the size limits in the annotations, or ``None`` if the object has none and is therefore no group.

    Upstream interprets a missing limit as 0. Here both are required; otherwise a group would be scaled to 0 because an
    annotation was lost or misspelt.
    """
    prefix = f"{source.api_group}/"
    keys = (prefix + MIN_SIZE, prefix + MAX_SIZE)
    texts = [source.annotations.get(key) for key in keys]
    if texts == [None, None]:
        return None
    sizes = []
    for key, text in zip(keys, texts, strict=True):
        if text is None:
            return object_problem(
                source, reasons.INVALID_LIMITS, f"annotation {key} is missing: both size annotations are required"
            )
        size = int(text) if _INTEGER.fullmatch(text) else -1
        if not 0 <= size <= _INT32:
            message = f"annotation {key} must be a whole number from 0 on, not {text!r}"
            return object_problem(source, reasons.INVALID_LIMITS, message)
        sizes.append(size)
    if sizes[1] < sizes[0]:
        message = f"annotation {keys[1]} must not be less than the minimum size: {sizes[1]} is less than {sizes[0]}"
        return object_problem(source, reasons.INVALID_LIMITS, message)
    return SizeLimits(*sizes)


def annotated_options(source: AnyMachineSet) -> tuple[GroupOptions, tuple[ObjectProblem, ...]]:
    """Return the options in the annotations, and a problem for each invalid one.

    Empty values are ignored, as upstream does.
    """
    found: dict[str, float] = {}
    problems = []
    prefix = f"{source.api_group}/{OPTIONS}"
    for key, text in sorted(source.annotations.items()):
        option = GROUP_OPTIONS.get(key.removeprefix(prefix)) if key.startswith(prefix) else None
        if option is None:
            if key.startswith(prefix):
                message = (
                    f"annotation {key} is not a known option: allowed are {', '.join(GROUP_OPTIONS)} after {prefix}"
                )
                problems.append(object_problem(source, reasons.INVALID_ANNOTATION, message))
            continue
        name, parse = option
        try:
            if text:
                found[name] = parse(text.lower())
        except ValueError as error:
            problems.append(object_problem(source, reasons.INVALID_ANNOTATION, f"annotation {key} {error}"))
    return GroupOptions(**found), tuple(problems)


def _share(text: str) -> float:
    if not _NUMBER.fullmatch(text) or not 0 <= float(text) <= 1:
        raise ValueError(f"must be a fraction between 0 and 1, e.g. 0.5; not {text!r}")
    return float(text)


GROUP_OPTIONS: Final[dict[str, tuple[str, Callable[[str], float]]]] = {
    "scaledownutilizationthreshold": ("utilization_threshold", _share),
    "scaledowngpuutilizationthreshold": ("gpu_utilization_threshold", _share),
    "scaledownunneededtime": ("unneeded_seconds", parse_go_duration),
    "scaledownunreadytime": ("unready_seconds", parse_go_duration),
    "maxnodeprovisiontime": ("provision_seconds", parse_go_duration),
    "maxnodestartuptime": ("startup_seconds", parse_go_duration),
}
"""Upstream's options: attribute name and parser by the last part of the annotation key."""
