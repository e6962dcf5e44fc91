"""Computes what kubelets derive from the capacity of their nodes: allocatable amounts and oom_score_adj.

The rules are those of the kubelet v1.36: ``pkg/kubelet/cm/node_container_manager_linux.go`` and
``pkg/kubelet/nodestatus/setters.go`` for allocatable, ``pkg/kubelet/qos/policy.go`` for oom_score_adj.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from trimtab.api.node_pressure_policy import (
    KUBELET_EVICTION_HARD,
    MEMORY_AVAILABLE,
    NODEFS_AVAILABLE,
    SIGNALS,
    ThresholdValue,
    parse_threshold,
)
from trimtab.disruption.protections import MIRROR_ANNOTATION
from trimtab.kube.errors import InputError
from trimtab.kube.objects import SYSTEM_CLASSES, Container, Node, Pod
from trimtab.kube.rules.pod_requests import effective_requests
from trimtab.kube.rules.quantity import QuantityError, resource_amount
from trimtab.pressure.imports import KubeletDocument, read_kubelet_document
from trimtab.pressure.ranking import EPHEMERAL_STORAGE, MEMORY

RESERVED_SIGNALS: Final = {MEMORY: MEMORY_AVAILABLE, EPHEMERAL_STORAGE: NODEFS_AVAILABLE}
"""The signals whose hard thresholds the kubelet subtracts from allocatable, by resource (``hardEvictionReservation``).
"""

# --- the kubelet's configuration --------------------------------------------------------------------------------------


class KubeletSettings(Struct, frozen=True):
    """The settings of a kubelet that determine allocatable.

    Attributes:
        system_reserved: amounts reserved for system daemons, by resource.
        kube_reserved: amounts reserved for Kubernetes' daemons, by resource.
        eviction_hard: the hard thresholds by signal.
        eviction_soft: the soft thresholds by signal.
        source: the origin of the settings, for messages; empty for the kubelet's defaults.
    """

    system_reserved: Mapping[str, int] = {}
    kube_reserved: Mapping[str, int] = {}
    eviction_hard: Mapping[str, ThresholdValue] = {}
    eviction_soft: Mapping[str, ThresholdValue] = {}
    source: str = ""


def kubelet_settings(document: Mapping[str, Any], *, source: str = "") -> KubeletSettings | None:
    """Read the settings from a configuration of kubelets, see :mod:`trimtab.pressure.imports`.

    If ``evictionHard`` is not set, the kubelet's defaults apply. If it is set, a signal that it does not contain has no
    threshold, unless ``mergeDefaultEvictionSettings`` is true.

    Args:
        document: the decoded document.
        source: the file, for error messages.

    Returns:
        the settings; ``None`` if the document is something else.

    Raises:
        InputError: a quantity or a threshold is invalid, or a signal is unknown.
    """
    found = read_kubelet_document(document, source=source)
    if found is None:
        return None
    fields = {name: _mapping(found, name, source) for name in _FIELDS if name in found.fields}
    hard = fields.get("evictionHard")
    if not hard:
        hard = dict(KUBELET_EVICTION_HARD)
    elif found.fields.get("mergeDefaultEvictionSettings") is True:
        hard = {**KUBELET_EVICTION_HARD, **hard}

    def path(name: str) -> str:
        return found.places.get(name, name)

    return KubeletSettings(
        system_reserved=_amounts(fields.get("systemReserved", {}), path("systemReserved"), source),
        kube_reserved=_amounts(fields.get("kubeReserved", {}), path("kubeReserved"), source),
        eviction_hard=_thresholds(hard, path("evictionHard"), source),
        eviction_soft=_thresholds(fields.get("evictionSoft", {}), path("evictionSoft"), source),
        source=source,
    )


_FIELDS: Final = ("systemReserved", "kubeReserved", "evictionHard", "evictionSoft")


def _mapping(document: KubeletDocument, name: str, source: str) -> dict[str, str]:
    value = document.fields[name]
    if not isinstance(value, Mapping):
        raise InputError("must be a mapping", source=source, field=document.places.get(name, name))
    return {str(key): str(text) for key, text in value.items()}


def _amounts(fields: Mapping[str, str], path: str, source: str) -> dict[str, int]:
    try:
        return {name: resource_amount(name, text) for name, text in fields.items()}
    except QuantityError as error:
        raise InputError(str(error), source=source, field=path) from None


def _thresholds(fields: Mapping[str, str], path: str, source: str) -> dict[str, ThresholdValue]:
    found: dict[str, ThresholdValue] = {}
    for signal, text in fields.items():
        if signal not in SIGNALS:
            raise InputError(
                f"{signal!r} is not an eviction signal; the signals are {', '.join(SIGNALS)}", source=source, field=path
            )
        try:
            value = parse_threshold(text)
        except ValueError as error:
            raise InputError(f"{signal}: {error}", source=source, field=path) from None
        if value is not None:
            found[signal] = value
    return found


# --- allocatable ------------------------------------------------------------------------------------------------------


class Reservation(Struct, frozen=True):
    """Why the allocatable amount of a resource is below the capacity. All amounts are in bytes.

    Attributes:
        resource: ``memory`` or ``ephemeral-storage``.
        capacity: the node's capacity.
        allocatable: the amount that the node reports for pods.
        eviction: the kubelet's hard eviction threshold, which the kubelet subtracts; 0 if there is none.
        system_reserved: amount reserved for system daemons; ``None`` if the kubelet's configuration is unknown.
        kube_reserved: amount reserved for Kubernetes' daemons; ``None`` if the kubelet's configuration is unknown.
        huge_pages: capacity of huge pages, which the kubelet subtracts from allocatable memory.
    """

    resource: str
    capacity: int
    allocatable: int
    eviction: int
    system_reserved: int | None = None
    kube_reserved: int | None = None
    huge_pages: int = 0

    @property
    def reserved(self) -> int:
        """Return the amount that pods cannot request."""
        return self.capacity - self.allocatable

    @property
    def daemons(self) -> int:
        """Return the part of the reserved amount that is for daemons, from the node's report.

        It is system-reserved plus kube-reserved, if the eviction threshold is known exactly.
        """
        return self.reserved - self.eviction - self.huge_pages

    @property
    def expected(self) -> int | None:
        """Return the allocatable amount that the kubelet computes; ``None`` if its configuration is unknown."""
        if self.system_reserved is None or self.kube_reserved is None:
            return None
        reserved = self.system_reserved + self.kube_reserved + self.eviction
        return max(0, max(0, self.capacity - reserved) - self.huge_pages)

    def daemon_room(self, threshold: int) -> int:
        """Return how much daemons may use until a threshold is met, if pods use everything that they can request.

        OpenShift 3's documentation demands that the reservation covers the threshold in addition to the daemons. If the
        result is negative, pods that use no more than they request can meet the threshold.
        """
        return self.reserved - threshold


def reservation_of(node: Node, resource: str, settings: KubeletSettings, *, known: bool) -> Reservation | None:
    """Compute why the allocatable amount of a resource is below the node's capacity.

    Args:
        node: the node.
        resource: ``memory`` or ``ephemeral-storage``.
        settings: the settings of the kubelet.
        known: whether the settings are those of this kubelet. If not, only the thresholds are used.

    Returns:
        the reservation; ``None`` if the node does not report the resource.
    """
    capacity = node.capacity.get(resource)
    allocatable = node.allocatable.get(resource)
    if capacity is None or allocatable is None:
        return None
    threshold = settings.eviction_hard.get(RESERVED_SIGNALS[resource])
    huge = sum(amount for name, amount in node.capacity.items() if name.startswith("hugepages-"))
    return Reservation(
        resource=resource,
        capacity=capacity,
        allocatable=allocatable,
        eviction=0 if threshold is None else threshold.of(capacity),
        system_reserved=settings.system_reserved.get(resource, 0) if known else None,
        kube_reserved=settings.kube_reserved.get(resource, 0) if known else None,
        huge_pages=huge if resource == MEMORY else 0,
    )


# --- oom_score_adj ----------------------------------------------------------------------------------------------------

GUARANTEED_ADJUSTMENT: Final = -997
BEST_EFFORT_ADJUSTMENT: Final = 1000
_NODE_CRITICAL: Final = "system-node-critical"
_LEAST_CRITICAL: Final = min(SYSTEM_CLASSES.values())


def oom_score_adjustment(pod: Pod, container: Container, memory_capacity: int) -> int:
    """Compute the oom_score_adj of a container (``GetContainerOOMScoreAdjust``).

    Guaranteed pods and pods of the class system-node-critical have -997, BestEffort pods 1000. Containers of Burstable
    pods have 1000 minus their memory request in thousandths of the node's memory, at least 3 and at most 999. A sidecar
    container has at most the value of the regular container with the smallest request.

    Args:
        pod: the container's pod.
        container: a container or an init container of the pod.
        memory_capacity: the memory capacity of the node in bytes; must be positive.
    """
    if _is_node_critical(pod) or pod.spec.qos == "Guaranteed":
        return GUARANTEED_ADJUSTMENT
    if pod.spec.qos == "BestEffort":
        return BEST_EFFORT_ADJUSTMENT
    share = _unallocated_share(pod)
    adjustment = _burstable(container.requests.get(MEMORY, 0) + share, memory_capacity)
    if container.restart_policy == "Always" and container in pod.spec.init_containers and pod.spec.containers:
        least = min(each.requests.get(MEMORY, 0) for each in pod.spec.containers)
        adjustment = min(adjustment, _burstable(least + share, memory_capacity))
    if adjustment < 1000 + GUARANTEED_ADJUSTMENT:
        return 1000 + GUARANTEED_ADJUSTMENT
    return adjustment - 1 if adjustment == BEST_EFFORT_ADJUSTMENT else adjustment


def _burstable(request: int, capacity: int) -> int:
    return 1000 - 1000 * request // capacity


def _is_node_critical(pod: Pod) -> bool:
    critical = pod.priority >= _LEAST_CRITICAL or MIRROR_ANNOTATION in pod.annotations
    return critical and pod.spec.priority_class_name == _NODE_CRITICAL


def _unallocated_share(pod: Pod) -> int:
    """Return the share of each container in the part of a pod-level memory request that no container requests."""
    spec = pod.spec
    requested = spec.pod_resources.get(MEMORY, 0)
    if not requested:
        return 0
    of_containers = effective_requests(spec.containers, spec.init_containers).get(MEMORY, 0)
    return max(0, requested - of_containers) // (len(spec.containers) + len(spec.init_containers))


class ContainerOom(Struct, frozen=True):
    """A running container, and how soon the kernel's OOM killer would kill it.

    Attributes:
        pod: ``namespace/name`` of the pod.
        container: the name of the container.
        qos: the QoS class of the pod.
        request: the memory request of the container in bytes.
        adjustment: its oom_score_adj.
        usage: its resident memory in bytes; ``None`` if unknown.
        score: the score that the kernel compares; ``None`` if the usage is unknown.
    """

    pod: str
    container: str
    qos: str
    request: int
    adjustment: int
    usage: int | None = None
    score: int | None = None


def oom_order(
    pods: Iterable[Pod], memory_capacity: int, usage: Mapping[tuple[str, str], int] | None = None
) -> list[ContainerOom]:
    """Return the containers of a node in the order in which the OOM killer would kill them.

    The kernel kills the process with the highest score: its memory in thousandths of the node's memory plus its
    oom_score_adj. A container whose usage is unknown is ordered as if it used its request.

    Args:
        pods: the pods on the node. Terminated pods, and init containers other than sidecars, are left out.
        memory_capacity: the memory capacity of the node in bytes; must be positive.
        usage: the resident memory of containers in bytes, by ``namespace/name`` of the pod and name of the container.
    """
    known = usage or {}
    found = []
    for pod in pods:
        if pod.terminal:
            continue
        sidecars = [each for each in pod.spec.init_containers if each.restart_policy == "Always"]
        for container in (*sidecars, *pod.spec.containers):
            used = known.get((pod.key, container.name))
            adjustment = oom_score_adjustment(pod, container, memory_capacity)
            found.append(
                ContainerOom(
                    pod=pod.key,
                    container=container.name,
                    qos=pod.spec.qos,
                    request=container.requests.get(MEMORY, 0),
                    adjustment=adjustment,
                    usage=used,
                    score=None if used is None else oom_score(used, adjustment, memory_capacity),
                )
            )

    def order(each: ContainerOom) -> tuple[int, int, str, str]:
        assumed = oom_score(each.request, each.adjustment, memory_capacity) if each.score is None else each.score
        return -assumed, -each.adjustment, each.pod, each.container

    return sorted(found, key=order)


def oom_score(usage: int, adjustment: int, memory_capacity: int) -> int:
    """Return the score with which the kernel compares processes (``oom_badness``), in thousandths of the memory."""
    return max(0, 1000 * usage // memory_capacity + adjustment)
