"""Defines NodeTemplate, a prediction of the next node of a group with its DaemonSet and static pods.

It also contains the rules for deriving a template from a node.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from enum import StrEnum
from fractions import Fraction
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.autoscaling.groups.node_group import ObjectProblem
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import CSINode, KubeObject, Node, Pod, Taint
from trimtab.kube.rules.node_labels import HOSTNAME
from trimtab.kube.rules.taints import DELETION_CANDIDATE as DELETION_CANDIDATE
from trimtab.kube.rules.taints import NETWORK_UNAVAILABLE, NOT_READY, TRIMTAB_PRESSURE_DOMAIN, UNINITIALIZED
from trimtab.kube.rules.taints import TO_BE_DELETED as TO_BE_DELETED

_AUTOSCALER_TAINTS: Final = frozenset({TO_BE_DELETED, DELETION_CANDIDATE})
_STATE_DOMAINS: Final = (
    "node.kubernetes.io",
    "node.cloudprovider.kubernetes.io",
    "node.cluster.x-k8s.io",
    TRIMTAB_PRESSURE_DOMAIN,
)
"""Domains of taints that describe a node's state."""

STARTUP_PREFIXES: Final = (
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "readiness.k8s.io/",  # of the node readiness controller
)
_STARTUP_TAINTS: Final = frozenset(
    {NOT_READY, NETWORK_UNAVAILABLE, UNINITIALIZED, "node.cluster.x-k8s.io/uninitialized"}
)
"""Taints that controllers of Kubernetes remove from a new node shortly after it is ready."""
_STATUS_PREFIX: Final = "status-taint.cluster-autoscaler.kubernetes.io/"


def is_startup_taint(taint: Taint, startup: Collection[str]) -> bool:
    """Return whether the taint indicates that its node is not ready for pods yet.

    Args:
        taint: the taint.
        startup: keys of ``spec.startupTaints``.
    """
    return taint.key in startup or taint.key in _STARTUP_TAINTS or taint.key.startswith(STARTUP_PREFIXES)


def lasting_taints(taints: Iterable[Taint], startup: Collection[str]) -> tuple[Taint, ...]:
    """Return the taints that a new node of the same group will have after startup, with their timestamps removed.

    Taints in the domains of Kubernetes and of trimtab's node-pressure controller are dropped, because they describe the
    node's state.
    """
    return tuple(
        Taint(key=taint.key, effect=taint.effect, value=taint.value)
        for taint in taints
        if taint.key not in _AUTOSCALER_TAINTS
        and taint.key.partition("/")[0] not in _STATE_DOMAINS
        and not taint.key.startswith(_STATUS_PREFIX)
        and not is_startup_taint(taint, startup)
    )


def with_taints(taints: Iterable[Taint], preferred: Iterable[Taint]) -> tuple[Taint, ...]:
    """Return the union of both sets of taints, sorted.

    If both contain a taint with the same key and effect, the one in ``preferred`` is used. If one of them contains
    several, the first is used, as by the machine controllers: the taints of a MachineSet may differ only in values.
    """
    merged: dict[tuple[str, str], Taint] = {}
    for taint in (*preferred, *taints):
        merged.setdefault((taint.key, taint.effect), taint)
    return tuple(merged[key] for key in sorted(merged))


_GIB: Final = 1 << 30
_EVICTION: Final = 100 << 20
_RESERVE_BELOW_1_GIB: Final = 255 << 20
_MEMORY_STEPS: Final = ((4 * _GIB, 25), (4 * _GIB, 20), (8 * _GIB, 10), (112 * _GIB, 6), (None, 2))
"""Tiers of memory in bytes, and the percentage of each tier that is reserved."""

_CPU_STEPS: Final = ((1000, 600), (1000, 100), (2000, 50), (None, 25))
"""Tiers of cpu in millicores, and the hundredths of a percent of each tier that are reserved."""


def reserve(capacity: ResourceList) -> ResourceList:
    """Estimate the part of a node's capacity that is reserved for the kubelet and the system, if no real node exists.

    Cluster-autoscaler treats the whole capacity as allocatable if a group has no node yet. Then pods appear to fit that
    do not, a node is added in vain, and the next iteration adds another one. The amounts here are those that GKE
    documents and that OpenShift's automatic node sizing reserves: shares of memory and cpu that decrease in tiers. The
    kubelet's default eviction thresholds are added: 100Mi of memory and a tenth of the disk.
    """
    reserved = {}
    if memory := capacity.get("memory", 0):
        reserved["memory"] = min(
            memory, (_sum_of_steps(memory, _MEMORY_STEPS, 100) if memory >= _GIB else _RESERVE_BELOW_1_GIB) + _EVICTION
        )
    if cpu := capacity.get("cpu", 0):
        reserved["cpu"] = _sum_of_steps(cpu, _CPU_STEPS, 10_000)
    if disk := capacity.get("ephemeral-storage", 0):
        reserved["ephemeral-storage"] = -(-disk // 10)
    return ResourceList(reserved)


def allocatable(capacity: ResourceList, reserved: ResourceList) -> ResourceList:
    """Return the capacity minus the reserved amounts."""
    return ResourceList({name: max(0, amount - reserved.get(name, 0)) for name, amount in capacity.items()})


def _sum_of_steps(amount: int, steps: Iterable[tuple[int | None, int]], whole: int) -> int:
    """Split an amount into tiers, and return the sum of each tier's share (``share / whole``), rounded up."""
    total, left = Fraction(0), amount
    for size, share in steps:
        part = left if size is None else min(left, size)
        total += Fraction(part * share, whole)
        left -= part
    return -(-total.numerator // total.denominator)


def template_name(group: str) -> str:
    """Return the name of a group's template node. No real node has this name, because node names contain no slash."""
    return f"template-for-{group}"


class TemplateOrigin(StrEnum):
    """The source of a template."""

    LEARNED = "Learned"
    """A ready node of the group."""
    RECORDED = "Recorded"
    """The record of a node that the group had."""
    ANNOTATIONS = "Annotations"
    """Annotations of the group's object; allocatable is estimated."""
    PROVIDER = "Provider"
    """The group's external provider."""


class NodeTemplate(Struct, frozen=True):
    """A prediction of a new node of a group.

    Attributes:
        group: id of the group.
        node: the node: ready, schedulable, named ``template-for-<group>``, without a hostname label. Its allocatable
            amounts do not account for :attr:`pods`.
        pods: DaemonSet and static pods of each new node, bound to :attr:`node`.
        drivers: CSI drivers of the node; ``None`` if they are unknown.
        origin: the source of the template.
        sample: name of the node that the template was learned from; it may have been deleted since. Empty for other
            origins.
        assumptions: assumptions made for the template, for example the reserved amounts.
    """

    group: str
    node: Node
    pods: tuple[Pod, ...] = ()
    drivers: CSINode | None = None
    origin: TemplateOrigin = TemplateOrigin.LEARNED
    sample: str = ""
    assumptions: tuple[str, ...] = ()

    @property
    def equivalence(self) -> Hashable:
        """Return a key that is equal for templates on whose nodes the same pods can be placed.

        It contains everything that the scheduler's filters read of a node, its pods and its CSI drivers, except names.
        """
        node, drivers = self.node, self.drivers
        return (
            node.labels,
            node.annotations,
            node.taints,
            node.unschedulable,
            node.allocatable,
            node.declared_features,
            tuple((pod.namespace, pod.labels, pod.spec) for pod in self.pods),
            None if drivers is None else replace(drivers, name="", uid="", resource_version=""),
        )

    def instance(self, name: str) -> tuple[KubeObject, ...]:
        """Return a new node with its pods and CSI drivers, to be added to a fork of a snapshot; the node comes first.

        Args:
            name: a unique node name, which is also its hostname label.
        """
        node = replace(
            self.node, name=name, uid=name, labels=Labels({**self.node.labels, HOSTNAME: name}), provider_id=""
        )
        pods = (replace(pod, name=f"{pod.name}-{name}", uid=f"{pod.uid}-{name}", node=name) for pod in self.pods)
        return (node, *pods, *(() if self.drivers is None else (replace(self.drivers, name=name, uid=name),)))

    @property
    def free(self) -> ResourceList:
        """Return the node's free resources for further pods. The resource ``pods`` is how many more it accepts."""
        left = dict(self.node.allocatable)
        for pod in self.pods:
            for name, amount in pod.spec.requests.items():
                left[name] = left.get(name, 0) - amount
        left["pods"] = left.get("pods", 0) - len(self.pods)
        return ResourceList({name: max(0, amount) for name, amount in left.items()})


class Templates(Struct, frozen=True):
    """The templates of groups.

    Attributes:
        of_group: the template of each group, sorted by group id. Groups without a known template are not included.
        problems: the reasons why groups have no template, and other problems of a group's record or annotations,
            sorted.
        uncounted: DaemonSets that match nodes of some group, and groups whose sample has a static pod, that is not
            expected on a new node. Each DaemonSet and static pod is listed once.
    """

    of_group: Mapping[str, NodeTemplate] = {}
    problems: tuple[ObjectProblem, ...] = ()
    uncounted: tuple[ObjectProblem, ...] = ()


DAEMON_SET = "DaemonSet"


def daemon_set_of(pod: Pod) -> str:
    """Return the DaemonSet that a pod names as its controller, as ``namespace/name``; empty for other pods.

    The name is no proof, because users write owner references.
    """
    owner = pod.controller
    return f"{pod.namespace}/{owner.name}" if owner is not None and owner.kind == DAEMON_SET else ""
