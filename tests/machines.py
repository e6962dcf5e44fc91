"""Builders of machines and of what makes them; tests import :mod:`tests.builders`."""

from __future__ import annotations

from typing import Any, Self

from tests.building import Builder
from trimtab.kube.objects import AnyMachine, AnyMachineSet
from trimtab.kube.wire.decode import decode_object

MACHINE_API = "machine.openshift.io"
CLUSTER_API = "cluster.x-k8s.io"
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io"


class MachineSetBuilder(Builder):
    """A group of no machines: a MachineSet, MachineDeployment or MachinePool of either API."""

    def __init__(self, group: str, version: str, kind: str, name: str, namespace: str) -> None:
        super().__init__(f"{group}/{version}", kind, name, namespace)
        self._group = group
        self._manifest["spec"] = {"replicas": 0}

    @property
    def name(self) -> str:
        return str(self._manifest["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self._manifest["metadata"]["namespace"])

    @property
    def kind(self) -> str:
        return str(self._manifest["kind"])

    def replicas(self, number: int) -> Self:
        self._at("spec")["replicas"] = number
        return self

    def limits(self, minimum: int | str, maximum: int | str) -> Self:
        """The limits as the annotations of the group's API."""
        prefix = f"{self._group}/cluster-api-autoscaler-node-group"
        return self.annotations({f"{prefix}-min-size": str(minimum), f"{prefix}-max-size": str(maximum)})

    def capacity(self, **amounts: str) -> Self:
        """Capacity annotations: ``capacity(cpu="4", memory="16Gi", ephemeral_disk="100Gi")``."""
        return self.annotations({f"{CAPACITY}/{name.replace('_', '-')}": text for name, text in amounts.items()})

    def option(self, name: str, value: str) -> Self:
        return self.annotations({f"{self._group}/autoscaling-options-{name}": value})

    def node_labels(self, labels: dict[str, str] | None = None, **more: str) -> Self:
        """Labels that nodes get: of the Machine API's template spec, or of Cluster API's template."""
        where = ("spec", "template", "spec") if self._group == MACHINE_API else ("spec", "template")
        self._at(*where, "metadata", "labels").update({**(labels or {}), **more})
        return self

    def node_taint(self, key: str, value: str = "", effect: str = "NoSchedule", *, propagation: str = "") -> Self:
        taint = {"key": key, "effect": effect} | ({"value": value} if value else {})
        taint |= {"propagation": propagation} if propagation else {}
        self._at("spec", "template", "spec").setdefault("taints", []).append(taint)
        return self

    def owned_by(self, kind: str, name: str) -> Self:
        return _owned(self, f"{self._group}/v1beta2", kind, name)

    def machine(self, name: str) -> MachineBuilder:
        """One of its machines."""
        kind = "Machine"
        version = self._manifest["apiVersion"].rpartition("/")[2]
        return MachineBuilder(self._group, version, kind, name, self.namespace).of(self)

    def build(self) -> AnyMachineSet:
        value = decode_object(self.manifest())
        assert isinstance(value, AnyMachineSet)
        return value


class MachineBuilder(Builder):
    """A machine of no set, being made."""

    def __init__(self, group: str, version: str, kind: str, name: str, namespace: str) -> None:
        super().__init__(f"{group}/{version}", kind, name, namespace)
        self._group = group
        self._manifest["spec"] = {}
        self._manifest["status"] = {"phase": "Provisioning"}

    def of(self, owner: MachineSetBuilder) -> Self:
        return _owned(self, f"{self._group}/v1beta1", owner.kind, owner.name, uid=owner.manifest()["metadata"]["uid"])

    def on(self, node: str, *, uid: str = "") -> Self:
        """Running, with that node; by default with the UID that the builder of nodes gives it."""
        reference = {"kind": "Node", "name": node, "uid": uid or f"node--{node}"}
        self._at("status").update(phase="Running", nodeRef=reference)
        return self

    def provider_id(self, provider_id: str) -> Self:
        self._at("spec")["providerID"] = provider_id
        return self

    def node_labels(self, **labels: str) -> Self:
        """Labels that it gives its node, wherever its API keeps them."""
        where = ("spec", "metadata", "labels") if self._group == MACHINE_API else ("metadata", "labels")
        self._at(*where).update(labels)
        return self

    def node_taint(self, key: str, value: str = "", effect: str = "NoSchedule") -> Self:
        """A taint that it gives its node."""
        taint = {"key": key, "effect": effect} | ({"value": value} if value else {})
        self._at("spec").setdefault("taints", []).append(taint)
        return self

    def failed(self, reason: str = "InsufficientResources", message: str = "no capacity in the zone") -> Self:
        old = self._group == MACHINE_API
        names = ("errorReason", "errorMessage") if old else ("failureReason", "failureMessage")
        self._at("status").update({"phase": "Failed", names[0]: reason, names[1]: message})
        return self

    def marked(self, time: str = "2026-11-20T12:00:00Z") -> Self:
        return self.annotations({f"{self._group}/delete-machine": time})

    def build(self) -> AnyMachine:
        value = decode_object(self.manifest())
        assert isinstance(value, AnyMachine)
        return value


def _owned(builder: Any, api_version: str, kind: str, name: str, *, uid: str = "") -> Any:
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "controller": True}
    if uid:
        reference["uid"] = uid
    builder._at("metadata").setdefault("ownerReferences", []).append(reference)
    return builder


def machine_set(name: str = "workers-a", namespace: str = "openshift-machine-api") -> MachineSetBuilder:
    """A MachineSet of OpenShift's Machine API."""
    return MachineSetBuilder(MACHINE_API, "v1beta1", "MachineSet", name, namespace)


def machine(name: str = "workers-a-1", namespace: str = "openshift-machine-api") -> MachineBuilder:
    """A Machine of OpenShift's Machine API."""
    return MachineBuilder(MACHINE_API, "v1beta1", "Machine", name, namespace)


def cluster_machine_set(
    name: str = "md-1", namespace: str = "default", *, kind: str = "MachineSet", version: str = "v1beta2"
) -> MachineSetBuilder:
    """A MachineSet of Cluster API, or another of its kinds that make machines."""
    return MachineSetBuilder(CLUSTER_API, version, kind, name, namespace)


def machine_deployment(name: str = "md", namespace: str = "default", *, version: str = "v1beta2") -> MachineSetBuilder:
    return cluster_machine_set(name, namespace, kind="MachineDeployment", version=version)


def machine_pool(name: str = "mp", namespace: str = "default", *, version: str = "v1beta2") -> MachineSetBuilder:
    return cluster_machine_set(name, namespace, kind="MachinePool", version=version)


def cluster_machine(name: str = "md-1-a", namespace: str = "default", *, version: str = "v1beta2") -> MachineBuilder:
    """A Machine of Cluster API."""
    return MachineBuilder(CLUSTER_API, version, "Machine", name, namespace)
