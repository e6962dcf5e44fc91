"""core/v1 Node and Namespace."""

from __future__ import annotations

from msgspec import field

from trimtab.kube.wire.json.base import Message, Quantities, Time
from trimtab.kube.wire.json.meta import ObjectMeta


class Taint(Message):
    """core/v1 Taint."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Time | None = None


class NodeSpec(Message):
    """core/v1 NodeSpec."""

    provider_id: str = field(name="providerID", default="")
    unschedulable: bool = False
    taints: list[Taint] = []


class ContainerImage(Message):
    """core/v1 ContainerImage: an image that a node holds."""

    names: list[str] = []
    size_bytes: int = 0


class NodeCondition(Message):
    """core/v1 NodeCondition."""

    type: str = ""
    status: str = ""
    last_heartbeat_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class NodeStatus(Message):
    """core/v1 NodeStatus."""

    capacity: Quantities = {}
    allocatable: Quantities = {}
    conditions: list[NodeCondition] = []
    images: list[ContainerImage] = []
    declared_features: list[str] = []


class Node(Message):
    """core/v1 Node."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


class Namespace(Message):
    """core/v1 Namespace."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
