"""Pods: a small value per pod around a spec that all pods of one template share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from trimtab.kube.frozen import NO_LABELS, NO_RESOURCES, Labels, ResourceList
from trimtab.kube.objects.affinity import Affinity
from trimtab.kube.objects.meta import OwnerReference
from trimtab.kube.objects.selector import LabelSelector


class HostPort(Struct, frozen=True, gc=False):
    """A port taken on the node. ``ip`` is ``0.0.0.0`` and ``protocol`` ``TCP`` where the pod leaves them out."""

    port: int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"


class Container(Struct, frozen=True, gc=False):
    """A container or init container; ``restart_policy`` Always makes an init container a sidecar."""

    name: str
    image: str = ""
    requests: ResourceList = NO_RESOURCES
    limits: ResourceList = NO_RESOURCES
    restart_policy: str = ""


class Toleration(Struct, frozen=True, gc=False):
    """core/v1 Toleration; ``seconds`` is ``tolerationSeconds``, nil means for ever. Empty ``operator`` is Equal."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    seconds: int | None = None


class TopologySpread(Struct, frozen=True, gc=False):
    """core/v1 TopologySpreadConstraint. The policies are ``""`` where unset (Honor for affinity, Ignore for taints)."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: tuple[str, ...] = ()


class Volume(Struct, frozen=True, gc=False):
    """What kind of volume, and of what claim or disk.

    ``kind`` is the JSON key of the source: ``hostPath``, ``emptyDir``, ``persistentVolumeClaim`` and so on. Volumes
    that no rule reads (configMap, secret, projected, downwardAPI) are left out of the spec.

    ``name`` is kept of ``ephemeral`` volumes, with the pod's name it makes the claim's, and of ``emptyDir`` and
    ``hostPath`` ones, which a pod's annotation may say to be dispensable. ``medium`` is an emptyDir's: ``Memory``, or
    empty for the node's disk. ``disk`` says which disk an inline volume is, for kinds that two pods must not share or
    that CSI drivers stand in for: the PD's name (gcePersistentDisk), the volume's ID (awsElasticBlockStore, cinder,
    portworxVolume), the IQN (iscsi), pool, image and then the monitors (rbd), the URI and the kind, e.g. ``Shared``
    (azureDisk); of an ``image`` volume the reference.
    """

    kind: str
    claim: str = ""
    read_only: bool = False
    name: str = ""
    disk: tuple[str, ...] = ()
    medium: str = ""


class PodSpec(Struct, frozen=True, gc=False):
    """What a template fixes; interned, so identity is equality and pods of one template share it.

    ``requests`` is what kube-scheduler counts for the pod: the larger of the sum of containers and sidecars and the
    largest init step, plus overhead, or the pod-level request where one is given (component-helpers
    ``resource.PodRequests``, v1.36); without ``pods``. ``nonzero_requests`` is the same for cpu and memory, with 100m
    and 200Mi for each container that states none: what scores count of pods that are on a node; always with both keys.
    ``scored_requests`` is what they count of the pod that is to be placed: the same without regard to pod-level
    requests. ``qos`` is the class that the API server computes, ``required_features`` what a node must declare.
    ``node`` is absent on purpose: it differs from pod to pod, see :attr:`Pod.node`.
    """

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: ResourceList = NO_RESOURCES
    pod_resources: ResourceList = NO_RESOURCES
    requests: ResourceList = NO_RESOURCES
    nonzero_requests: ResourceList = NO_RESOURCES
    scored_requests: ResourceList = NO_RESOURCES
    qos: str = "BestEffort"
    host_ports: tuple[HostPort, ...] = ()
    node_selector: Labels = NO_LABELS
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()
    topology_spread: tuple[TopologySpread, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[str, ...] = ()
    required_features: tuple[str, ...] = ()
    scheduling_gates: tuple[str, ...] = ()
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    scheduler_name: str = ""
    restart_policy: str = ""
    host_network: bool = False
    termination_grace_period: int | None = None


NO_SPEC = PodSpec()


class PodCondition(Struct, frozen=True, gc=False):
    """A condition worth keeping; see :attr:`Pod.conditions`."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: float | None = None


class ContainerState(Struct, frozen=True, gc=False):
    """A container that does not run: it waits, or it has ended.

    ``kind`` is ``container``, ``init container`` or ``ephemeral container``. ``exit_code`` is ``None`` of a container
    that waits. ``reason`` is the kubelet's word, e.g. ``CrashLoopBackOff`` or ``OOMKilled``.
    """

    kind: str
    name: str
    reason: str = ""
    exit_code: int | None = None


CONTAINER: Final = "container"
INIT_CONTAINER: Final = "init container"
EPHEMERAL_CONTAINER: Final = "ephemeral container"


ENDED: Final = frozenset({"Succeeded", "Failed"})
"""Phases of pods that have run to their end."""


class Pod(Struct, frozen=True, gc=False):
    """A pod as planners read it: about 0.4 KiB, the shared spec aside.

    ``annotations`` keeps only keys that trimtab or a peer gives a meaning (see ``kube.wire.annotations``).
    ``conditions`` leaves out the five standard ones of a pod that is ready while they are True; ``ready_since`` is when
    Ready became True, nil while it is not. :meth:`every_condition` has all.
    ``restarts`` sums the containers' restart counts, init containers apart in ``init_restarts``.
    ``container_states`` has the containers that do not run, shared by all pods of which the same is told.
    """

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Labels = NO_LABELS
    annotations: Labels = NO_LABELS
    owners: tuple[OwnerReference, ...] = ()
    created: float | None = None
    deleted: float | None = None
    node: str = ""
    spec: PodSpec = NO_SPEC
    phase: str = ""
    reason: str = ""
    ready: bool = False
    ready_since: float | None = None
    started: float | None = None
    nominated_node: str = ""
    restarts: int = 0
    init_restarts: int = 0
    conditions: tuple[PodCondition, ...] = ()
    container_states: tuple[ContainerState, ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that recreates the pod, or ``None`` for a bare pod."""
        for owner in self.owners:
            if owner.controller:
                return owner
        return None

    @property
    def terminal(self) -> bool:
        """Whether the pod has run to its end: it holds no resources (kube-scheduler v1.36 ``IsPodTerminal``)."""
        return self.phase in ENDED

    def every_condition(self) -> Iterator[PodCondition]:
        """All conditions, those that are as they should be included.

        Of the standard ones of a ready pod only Ready's own time is known. A pod is scheduled before it is started, and
        the other three are True before Ready is, so these times stand for theirs: later than the truth, never earlier.
        """
        yield from self.conditions
        if self.ready:
            yield PodCondition(type="PodScheduled", status="True", since=self.started)
            for type_ in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"):
                yield PodCondition(type=type_, status="True", since=self.ready_since)

    @property
    def priority(self) -> int:
        """The priority, 0 where none was admitted."""
        return self.spec.priority or 0
