"""machine.openshift.io/v1beta1 and cluster.x-k8s.io: machines, and what makes them.

One struct reads a kind in all versions and of both APIs: where they say the same in different places, both places are
fields, and :mod:`trimtab.kube.wire.machine` knows which to read.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from trimtab.kube.wire.json.base import Message
from trimtab.kube.wire.json.meta import ObjectMeta
from trimtab.kube.wire.json.node import Taint


class NodeReference(Message):
    """The node of a machine: core/v1 ObjectReference, of which Cluster API's v1beta2 keeps the name alone."""

    name: str = ""


class FailureOfOld(Message):
    """Where Cluster API's v1beta2 keeps what its v1beta1 said of failures."""

    failure_reason: str = ""
    failure_message: str = ""


class Deprecated(Message):
    """``status.deprecated`` of Cluster API's v1beta2."""

    v1beta1: FailureOfOld = field(default_factory=FailureOfOld)


class MachineTaint(Taint):
    """A taint that a machine's node gets; Cluster API (v1.12) says besides whether it is kept on the node."""

    propagation: str = ""


class MachineSpec(Message):
    """What is read of a machine's spec."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    provider_id: str = field(name="providerID", default="")
    taints: list[MachineTaint] = []


class MachineStatus(Message):
    """What is read of a machine's status: ``error…`` is the Machine API's, ``failure…`` Cluster API's."""

    node_ref: NodeReference | None = None
    phase: str = ""
    error_reason: str = ""
    error_message: str = ""
    failure_reason: str = ""
    failure_message: str = ""
    deprecated: Deprecated = field(default_factory=Deprecated)


class Machine(Message):
    """A Machine of either API."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: MachineSpec = field(default_factory=MachineSpec)
    status: MachineStatus = field(default_factory=MachineStatus)


class ClusterMachine(Machine):
    """cluster.x-k8s.io Machine."""


class TemplateMachineSpec(MachineSpec):
    """What is read of the spec that machines get; the two that say what is rented are each one API's.

    Both are in the provider's own form, so nothing that they hold makes an object unreadable.
    """

    provider_spec: Any = None
    infrastructure_ref: Any = None


class MachineTemplateSpec(Message):
    """The template that machines are made of."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: TemplateMachineSpec = field(default_factory=TemplateMachineSpec)


class Deletion(Message):
    """``spec.deletion`` of Cluster API's v1beta2; its v1beta1 has ``deletePolicy``."""

    order: str = ""


class MachineSetSpec(Message):
    """What is read of the spec of a MachineSet, MachineDeployment or MachinePool."""

    replicas: int | None = None
    template: MachineTemplateSpec = field(default_factory=MachineTemplateSpec)
    delete_policy: str = ""
    deletion: Deletion = field(default_factory=Deletion)
    paused: bool = False
    authoritative_api: str = field(name="authoritativeAPI", default="")
    provider_id_list: list[str] = field(name="providerIDList", default_factory=list)


class MachineSetStatus(Message):
    """What is read of the status of a MachineSet, MachineDeployment or MachinePool."""

    authoritative_api: str = field(name="authoritativeAPI", default="")
    node_refs: list[NodeReference] = []
    error_reason: str = ""
    error_message: str = ""
    failure_reason: str = ""
    failure_message: str = ""
    deprecated: Deprecated = field(default_factory=Deprecated)


class MachineSet(Message):
    """A MachineSet of either API."""

    api_version: str = ""
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: MachineSetSpec = field(default_factory=MachineSetSpec)
    status: MachineSetStatus = field(default_factory=MachineSetStatus)


class ClusterMachineSet(MachineSet):
    """cluster.x-k8s.io MachineSet."""


class MachineDeployment(MachineSet):
    """cluster.x-k8s.io MachineDeployment."""


class MachinePool(MachineSet):
    """cluster.x-k8s.io MachinePool."""
