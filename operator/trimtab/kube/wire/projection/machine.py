"""Projects machines and node groups of the Machine API and of Cluster API (v1beta1 and v1beta2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from trimtab.kube.frozen import NO_LABELS, FrozenMap, Labels
from trimtab.kube.objects import (
    AnyMachine,
    AnyMachineSet,
    ClusterMachine,
    ClusterMachineSet,
    KubeObject,
    Machine,
    MachineDeployment,
    MachinePool,
    MachineSet,
    Taint,
)
from trimtab.kube.objects.machine import CLUSTER_API, CLUSTER_LABELS
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.projection import fields

M = TypeVar("M", bound=AnyMachine)
S = TypeVar("S", bound=AnyMachineSet)

ON_INITIALIZATION: Final = "OnInitialization"
_ROLE: Final = "node-role.kubernetes.io"
_PROPAGATED: Final = ("node-restriction.kubernetes.io", "node.cluster.x-k8s.io")
SIZES: Final = frozenset(
    {
        *("instanceType", "machineType", "vmSize", "flavor", "profile", "systemType"),
        *("numCPUs", "numCoresPerSocket", "vcpuSockets", "vcpusPerSocket", "processors"),
        *("memoryMiB", "memoryGiB", "memorySize", "diskGiB", "systemDiskSize", "gpus"),
    }
)
"""The fields of ``providerSpec.value`` that determine the size of a machine, for all of OpenShift's providers."""

DEFAULT_VERSIONS: Final[Mapping[type[AnyMachineSet], str]] = {
    MachineSet: "machine.openshift.io/v1beta1",
    ClusterMachineSet: "cluster.x-k8s.io/v1beta2",
    MachineDeployment: "cluster.x-k8s.io/v1beta2",
    MachinePool: "cluster.x-k8s.io/v1beta2",
}
"""The API version of an object that has none, such as an item of a list."""


def machine_projector(kind: type[M]) -> Callable[[Any, Interner], M]:
    """Create the function that projects the machines of one API."""

    def project(message: Any, interner: Interner) -> M:
        status = message.status
        reason, text = _failure(status)
        return kind(
            **fields.metadata(kind, message, interner),
            cluster=interner.string(_cluster(kind, message)),
            provider_id=message.spec.provider_id,
            node=interner.string(status.node_ref.name) if status.HasField("node_ref") else "",
            node_uid=interner.string(status.node_ref.uid) if status.HasField("node_ref") else "",
            phase=interner.string(status.phase),
            error_reason=interner.string(reason),
            error_message=interner.string(text),
            node_labels=interner.share(_node_labels(kind, message)),
            node_taints=interner.share(_taints(message.spec.taints)),
        )

    return project


def machine_set_projector(kind: type[S]) -> Callable[[Any, Interner], S]:
    """Create the function that projects one kind of node group."""

    def project(message: Any, interner: Interner) -> S:
        spec, status = message.spec, message.status
        template = spec.template
        reason, text = _failure(status)
        return kind(
            **fields.metadata(kind, message, interner),
            api_version=interner.string(message.api_version or DEFAULT_VERSIONS[kind]),
            cluster=interner.string(_cluster(kind, message)),
            replicas=spec.replicas,
            node_labels=_node_labels(kind, template),
            node_taints=_taints(template.spec.taints),
            initial_taints=_taints(each for each in template.spec.taints if each.propagation == ON_INITIALIZATION),
            machine_labels=fields.labels(template.metadata.labels, interner),
            machine_type=interner.string(_machine_type(template.spec)),
            delete_policy=interner.string(spec.delete_policy or spec.deletion.order),
            paused=spec.paused,
            # The status contains the API that is authoritative now, and the spec the one that takes over after a
            # migration.
            authoritative_api=interner.string(status.authoritative_api or spec.authoritative_api),
            provider_ids=tuple(spec.provider_id_list),
            nodes=tuple(
                (interner.string(each.name), interner.string(each.uid)) for each in status.node_refs if each.name
            ),
            error_reason=interner.string(reason),
            error_message=interner.string(text),
        )

    return project


def _cluster(kind: type[AnyMachine | AnyMachineSet], message: Any) -> str:
    """Return the name of the cluster that an object belongs to, or an empty string if there is none."""
    named: str = message.spec.cluster_name or message.metadata.labels.get(CLUSTER_LABELS[kind.api_group], "")
    return named


def propagated_labels(labels: Mapping[str, str]) -> Labels:
    """Return the labels of a machine that Cluster API propagates to its node.

    These are the labels of node-role.kubernetes.io, node-restriction.kubernetes.io, node.cluster.x-k8s.io and
    subdomains of the latter two (Cluster API, "Metadata propagation": Machine to Node).
    """
    kept = {}
    for key, value in labels.items():
        domain, slash, _ = key.partition("/")
        below = any(domain == name or domain.endswith(f".{name}") for name in _PROPAGATED)
        if slash and (domain == _ROLE or below):
            kept[key] = value
    return FrozenMap(kept) if kept else NO_LABELS


def _taints(messages: Iterable[Any]) -> tuple[Taint, ...]:
    """Convert taints, omitting ``timeAdded``, which has no meaning in a template."""
    return tuple(Taint(key=each.key, effect=each.effect, value=each.value) for each in messages)


def _node_labels(kind: type[AnyMachine | AnyMachineSet], source: Any) -> Labels:
    """Return the labels that nodes receive from a machine or from a machine template."""
    if kind.api_group == CLUSTER_API:
        return propagated_labels(source.metadata.labels)
    labels = source.spec.metadata.labels
    return FrozenMap(labels) if labels else NO_LABELS


def _machine_type(spec: Any) -> str:
    """Return the machine type.

    In Cluster API this is the reference to the immutable infrastructure template, otherwise the fields that determine
    the size. The complete ``providerSpec`` is not suitable, because each cluster update replaces the image in it while
    machines keep their size.
    """
    found: dict[str, Any] = {}
    if isinstance(spec.infrastructure_ref, dict):
        found = {key: spec.infrastructure_ref[key] for key in ("kind", "name") if key in spec.infrastructure_ref}
    elif isinstance(spec.provider_spec, dict) and isinstance(spec.provider_spec.get("value"), dict):
        found = {key: value for key, value in spec.provider_spec["value"].items() if key in SIZES}
    return msgspec.json.encode(found, order="deterministic").decode() if found else ""


def _failure(status: Any) -> tuple[str, str]:
    """Return the reason and message of a permanent failure, from the fields of any API version."""
    old = status.deprecated.v1beta1
    return (
        status.error_reason or status.failure_reason or old.failure_reason,
        status.error_message or status.failure_message or old.failure_message,
    )


PROJECTORS: Final[Mapping[str, Callable[[Any, Interner], KubeObject]]] = {
    "Machine": machine_projector(Machine),
    "ClusterMachine": machine_projector(ClusterMachine),
    "MachineSet": machine_set_projector(MachineSet),
    "ClusterMachineSet": machine_set_projector(ClusterMachineSet),
    "MachineDeployment": machine_set_projector(MachineDeployment),
    "MachinePool": machine_set_projector(MachinePool),
}
