"""Projection of machines and of what makes them: of the Machine API, and of Cluster API's v1beta1 and v1beta2."""

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
from trimtab.kube.objects.machine import CLUSTER_API
from trimtab.kube.wire import fields
from trimtab.kube.wire.intern import Interner

M = TypeVar("M", bound=AnyMachine)
S = TypeVar("S", bound=AnyMachineSet)

ON_INITIALIZATION: Final = "OnInitialization"
_ROLE: Final = "node-role.kubernetes.io"
_HANDED_ON: Final = ("node-restriction.kubernetes.io", "node.cluster.x-k8s.io")
SIZES: Final = frozenset(
    {
        *("instanceType", "machineType", "vmSize", "flavor", "profile", "systemType"),
        *("numCPUs", "numCoresPerSocket", "vcpuSockets", "vcpusPerSocket", "processors"),
        *("memoryMiB", "memoryGiB", "memorySize", "diskGiB", "systemDiskSize", "gpus"),
    }
)
"""Fields of ``providerSpec.value`` that say how large a machine is, of all providers that OpenShift has."""

DEFAULT_VERSIONS: Final[Mapping[type[AnyMachineSet], str]] = {
    MachineSet: "machine.openshift.io/v1beta1",
    ClusterMachineSet: "cluster.x-k8s.io/v1beta2",
    MachineDeployment: "cluster.x-k8s.io/v1beta2",
    MachinePool: "cluster.x-k8s.io/v1beta2",
}
"""The version that is assumed where an object does not say its own, as items of a list need not."""


def machine_projector(kind: type[M]) -> Callable[[Any, Interner], M]:
    """The projection of machines of one API."""

    def project(message: Any, interner: Interner) -> M:
        metadata, status = message.metadata, message.status
        reason, text = _failure(status)
        return kind(
            namespace=interner.string(metadata.namespace or "default"),
            name=fields.required(metadata.name, "metadata.name"),
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            labels=fields.labels(metadata.labels, interner),
            annotations=fields.kept_annotations(metadata.annotations, interner),
            owners=fields.owners(metadata.owner_references, interner),
            created=fields.seconds(metadata, "creation_timestamp"),
            deleted=fields.seconds(metadata, "deletion_timestamp"),
            provider_id=message.spec.provider_id,
            node=interner.string(status.node_ref.name) if status.HasField("node_ref") else "",
            phase=interner.string(status.phase),
            error_reason=interner.string(reason),
            error_message=interner.string(text),
            node_labels=interner.share(_node_labels(kind, message)),
            node_taints=interner.share(_taints(message.spec.taints)),
        )

    return project


def machine_set_projector(kind: type[S]) -> Callable[[Any, Interner], S]:
    """The projection of one kind that makes machines."""

    def project(message: Any, interner: Interner) -> S:
        metadata, spec, status = message.metadata, message.spec, message.status
        template = spec.template
        reason, text = _failure(status)
        return kind(
            namespace=interner.string(metadata.namespace or "default"),
            name=fields.required(metadata.name, "metadata.name"),
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            api_version=interner.string(message.api_version or DEFAULT_VERSIONS[kind]),
            labels=fields.labels(metadata.labels, interner),
            annotations=fields.kept_annotations(metadata.annotations, interner),
            owners=fields.owners(metadata.owner_references, interner),
            created=fields.seconds(metadata, "creation_timestamp"),
            deleted=fields.seconds(metadata, "deletion_timestamp"),
            replicas=spec.replicas,
            node_labels=_node_labels(kind, template),
            node_taints=_taints(template.spec.taints),
            initial_taints=_taints(each for each in template.spec.taints if each.propagation == ON_INITIALIZATION),
            machine_labels=fields.labels(template.metadata.labels, interner),
            machine_type=interner.string(_machine_type(template.spec)),
            delete_policy=interner.string(spec.delete_policy or spec.deletion.order),
            paused=spec.paused,
            # The status says who acts now; the spec says who is to act once the other has let go.
            authoritative_api=interner.string(status.authoritative_api or spec.authoritative_api),
            provider_ids=tuple(spec.provider_id_list),
            nodes=tuple(interner.string(each.name) for each in status.node_refs if each.name),
            error_reason=interner.string(reason),
            error_message=interner.string(text),
        )

    return project


def handed_on(labels: Mapping[str, str]) -> Labels:
    """The labels of a machine that Cluster API keeps equal on its node; all others stay the machine's own.

    It is those of node-role.kubernetes.io, and of the two domains for such labels and domains below them (Cluster
    API, "Metadata propagation": Machine to Node).
    """
    kept = {}
    for key, value in labels.items():
        domain, slash, _ = key.partition("/")
        below = any(domain == name or domain.endswith(f".{name}") for name in _HANDED_ON)
        if slash and (domain == _ROLE or below):
            kept[key] = value
    return FrozenMap(kept) if kept else NO_LABELS


def _taints(messages: Iterable[Any]) -> tuple[Taint, ...]:
    """Without times: what a template says of those is of no node."""
    return tuple(Taint(key=each.key, effect=each.effect, value=each.value) for each in messages)


def _node_labels(kind: type[AnyMachine | AnyMachineSet], source: Any) -> Labels:
    """The labels that nodes get of a machine, or of the template of machines."""
    if kind.api_group == CLUSTER_API:
        return handed_on(source.metadata.labels)
    labels = source.spec.metadata.labels
    return FrozenMap(labels) if labels else NO_LABELS


def _machine_type(spec: Any) -> str:
    """What is rented: the provider's object in Cluster API, whose templates never change; else the telling fields.

    Of a ``providerSpec`` not the whole: images are replaced with each update of the cluster, and the machines' size
    stays what it was.
    """
    found: dict[str, Any] = {}
    if isinstance(spec.infrastructure_ref, dict):
        found = {key: spec.infrastructure_ref[key] for key in ("kind", "name") if key in spec.infrastructure_ref}
    elif isinstance(spec.provider_spec, dict) and isinstance(spec.provider_spec.get("value"), dict):
        found = {key: value for key, value in spec.provider_spec["value"].items() if key in SIZES}
    return msgspec.json.encode(found, order="deterministic").decode() if found else ""


def _failure(status: Any) -> tuple[str, str]:
    """Reason and message of what went wrong for good, wherever the version says it."""
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
