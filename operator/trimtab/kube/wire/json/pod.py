"""core/v1 Pod."""

from __future__ import annotations

from msgspec import field

from trimtab.kube.wire.json.affinity import Affinity, Toleration, TopologySpreadConstraint
from trimtab.kube.wire.json.base import Message, Quantities, Time
from trimtab.kube.wire.json.meta import Condition, ObjectMeta, ResourceRequirements
from trimtab.kube.wire.json.volume import Volume


class ContainerPort(Message):
    """core/v1 ContainerPort."""

    host_port: int = 0
    container_port: int = 0
    protocol: str = ""
    host_ip: str = field(name="hostIP", default="")


class ContainerRestartRule(Message):
    """core/v1 ContainerRestartRule, of which only the action is read."""

    action: str = ""


class Container(Message):
    """core/v1 Container."""

    name: str = ""
    image: str = ""
    ports: list[ContainerPort] = []
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    restart_policy: str = ""
    restart_policy_rules: list[ContainerRestartRule] = []


class Named(Message):
    """A scheduling gate or a resource claim: only the name counts."""

    name: str = ""


class PodSpec(Message):
    """core/v1 PodSpec."""

    volumes: list[Volume] = []
    containers: list[Container] = []
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    node_selector: dict[str, str] = {}
    node_name: str = ""
    host_network: bool = False
    affinity: Affinity | None = None
    scheduler_name: str = ""
    init_containers: list[Container] = []
    tolerations: list[Toleration] = []
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str = ""
    overhead: Quantities = {}
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    scheduling_gates: list[Named] = []
    resource_claims: list[Named] = []
    resources: ResourceRequirements | None = None


class ContainerStateWaiting(Message):
    """core/v1 ContainerStateWaiting."""

    reason: str = ""


class ContainerStateTerminated(Message):
    """core/v1 ContainerStateTerminated."""

    exit_code: int = 0
    reason: str = ""


class ContainerState(Message):
    """core/v1 ContainerState; a container in neither state runs."""

    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Message):
    """core/v1 ContainerStatus."""

    name: str = ""
    state: ContainerState = field(default_factory=ContainerState)
    restart_count: int = 0
    allocated_resources: Quantities = {}
    resources: ResourceRequirements | None = None


class PodStatus(Message):
    """core/v1 PodStatus."""

    phase: str = ""
    conditions: list[Condition] = []
    reason: str = ""
    start_time: Time | None = None
    container_statuses: list[ContainerStatus] = []
    qos_class: str = ""
    init_container_statuses: list[ContainerStatus] = []
    nominated_node_name: str = ""
    ephemeral_container_statuses: list[ContainerStatus] = []
    allocated_resources: Quantities = {}
    resources: ResourceRequirements | None = None


class Pod(Message):
    """core/v1 Pod."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)
