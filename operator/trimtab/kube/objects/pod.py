"""Pods, with their affinities and conditions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from trimtab.kube.frozen import NO_LABELS, NO_RESOURCES, Labels, ResourceList
from trimtab.kube.objects.meta import LabelSelector, Namespaced, NodeSelector, NodeSelectorTerm, OwnerReference


class PreferredNodeTerm(Struct, frozen=True, gc=False):
    """A node preference with its weight, 1 to 100."""

    weight: int
    term: NodeSelectorTerm


class NodeAffinity(Struct, frozen=True, gc=False):
    """core/v1 NodeAffinity.

    ``required`` is ``None`` if absent. A required selector without terms matches no node.
    """

    required: NodeSelector | None = None
    preferred: tuple[PreferredNodeTerm, ...] = ()


class PodAffinityTerm(Struct, frozen=True, gc=False):
    """core/v1 PodAffinityTerm. It matches pods by ``selector`` and namespace, per value of the label ``topology_key``.

    Without ``namespaces`` and ``namespace_selector`` the term applies to the pod's own namespace. An empty namespace
    selector matches all namespaces. The API server merges (mis)matchLabelKeys into ``selector`` when a pod is created.
    """

    topology_key: str
    selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodTerm(Struct, frozen=True, gc=False):
    """A preferred pod (anti-)affinity term with its weight, 1 to 100."""

    weight: int
    term: PodAffinityTerm


class Affinity(Struct, frozen=True, gc=False):
    """The node affinity, pod affinity and pod anti-affinity of a pod. Absent parts are empty."""

    node: NodeAffinity = NodeAffinity()
    pod_required: tuple[PodAffinityTerm, ...] = ()
    pod_preferred: tuple[WeightedPodTerm, ...] = ()
    anti_required: tuple[PodAffinityTerm, ...] = ()
    anti_preferred: tuple[WeightedPodTerm, ...] = ()

    @property
    def has_pod_terms(self) -> bool:
        """Return whether there are pod affinity or anti-affinity terms."""
        return bool(self.pod_required or self.anti_required or self.pod_preferred or self.anti_preferred)


class HostPort(Struct, frozen=True, gc=False):
    """A host port of a pod. ``ip`` defaults to ``0.0.0.0`` and ``protocol`` to ``TCP``."""

    port: int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"


class Container(Struct, frozen=True, gc=False):
    """A container or init container. ``restart_policy`` Always makes an init container a sidecar."""

    name: str
    image: str = ""
    requests: ResourceList = NO_RESOURCES
    limits: ResourceList = NO_RESOURCES
    restart_policy: str = ""


class Toleration(Struct, frozen=True, gc=False):
    """core/v1 Toleration.

    ``seconds`` is ``tolerationSeconds``, or ``None`` for no limit. An empty ``operator`` is Equal.
    """

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    seconds: int | None = None


class TopologySpread(Struct, frozen=True, gc=False):
    """core/v1 TopologySpreadConstraint.

    Unset inclusion policies are ``""``, which means Honor for affinity and Ignore for taints.
    """

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: tuple[str, ...] = ()


class Volume(Struct, frozen=True, gc=False):
    """A volume of a pod.

    ``kind`` is the JSON key of the source: ``hostPath``, ``emptyDir``, ``persistentVolumeClaim`` and so on. Volumes
    that no rule reads (configMap, secret, projected, downwardAPI) are omitted from the spec.

    ``name`` is set for ``ephemeral`` volumes, because it is part of the claim's name, and for ``emptyDir`` and
    ``hostPath`` volumes, which an annotation of the pod may declare safe to lose. It is empty for other volumes.
    ``medium`` is the medium of an emptyDir: ``Memory``, or empty for the node's disk. ``disk`` identifies the disk of
    an inline volume if two pods must not share the source, or if it is migrated to a CSI driver: the PD name
    (gcePersistentDisk), the volume ID (awsElasticBlockStore, cinder, portworxVolume), the IQN (iscsi), pool, image and
    monitors (rbd), the URI and the kind, e.g. ``Shared`` (azureDisk). For an ``image`` volume it is the image
    reference.
    """

    kind: str
    claim: str = ""
    read_only: bool = False
    name: str = ""
    disk: tuple[str, ...] = ()
    medium: str = ""


class PodSpec(Struct, frozen=True, gc=False):
    """The part of a pod's spec that is the same for all pods of a template.

    Specs are interned, so they can be compared by identity.

    ``requests`` are the effective requests as in kube-scheduler, excluding ``pods``. They are the sum of containers and
    sidecars, or the requests of the largest init step if those are larger, plus overhead. Pod-level requests take
    precedence (component-helpers ``resource.PodRequests``, v1.36). ``nonzero_requests`` are the cpu and memory requests
    that score plugins use for pods on a node, with defaults of 100m and 200Mi for each container without requests. Both
    keys are always present. ``scored_requests`` are the requests that score plugins use for the pod being placed. They
    ignore pod-level requests. ``qos`` is the QoS class that the API server computes. ``required_features`` are the
    features that a node must declare to run the pod. The node name is not part of the spec but of the pod
    (:attr:`Pod.node`), because it differs between pods of one template.

    ``pod_group`` is the name of the PodGroup that the pod belongs to (``schedulingGroup``), whose pods are scheduled
    together; empty for most pods.

    ``complexity`` describes which limits of :mod:`trimtab.kube.wire.limits` the pod exceeds, and is empty if it exceeds
    none. If the pod exceeds a limit, the spec contains only some of the fields, and the pod is neither moved nor
    placed. In this case, ``further_requests`` contains the requests that ``requests`` omits, in packed form.

    ``kibibytes`` is the encoded size of a spec of at least 4 KiB, and 0 for smaller specs.
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
    pod_group: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    runtime_class_name: str = ""
    preemption_policy: str = ""
    scheduler_name: str = ""
    restart_policy: str = ""
    host_network: bool = False
    termination_grace_period: int | None = None
    complexity: str = ""
    further_requests: bytes = b""
    kibibytes: int = 0


NO_SPEC = PodSpec()


class PodCondition(Struct, frozen=True, gc=False):
    """A condition of a pod. :attr:`Pod.conditions` describes which conditions are stored."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: float | None = None


class ContainerState(Struct, frozen=True, gc=False):
    """A container that is waiting or terminated.

    ``kind`` is ``container``, ``init container`` or ``ephemeral container``. ``exit_code`` is ``None`` for a waiting
    container. ``reason`` is the kubelet's reason, e.g. ``CrashLoopBackOff`` or ``OOMKilled``.
    """

    kind: str
    name: str
    reason: str = ""
    exit_code: int | None = None


CONTAINER: Final = "container"
INIT_CONTAINER: Final = "init container"
EPHEMERAL_CONTAINER: Final = "ephemeral container"


TERMINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""The phases of terminated pods."""


class Pod(Namespaced, frozen=True, gc=False):
    """core/v1 Pod. A pod needs about 0.4 KiB in addition to the shared spec.

    ``annotations`` contains only keys that trimtab or a related project defines
    (:mod:`trimtab.kube.wire.projection.annotations`). ``conditions`` omits the five standard conditions of a ready pod
    while they are True; :meth:`all_conditions` includes them. ``ready_since`` is the time at which Ready became True,
    or ``None`` if the pod is not ready. ``restarts`` is the sum of the restart counts of containers, and
    ``init_restarts`` that of init containers. ``container_states`` contains the containers that are not running. Pods
    with identical states share the value. ``generation`` is 1 until the spec is changed, for example by an in-place
    resize, and 0 if the API server does not count it. ``node_name_managed`` is whether the ``managedFields`` of a
    pod on a node contain ``spec.nodeName``. They do if it was created with a node name; binding a pod adds no entry.
    """

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
    generation: int = 0
    node_name_managed: bool = False

    @property
    def controller(self) -> OwnerReference | None:
        """Return the reference to the pod's managing controller, or ``None`` for a bare pod."""
        for owner in self.owners:
            if owner.controller:
                return owner
        return None

    @property
    def terminal(self) -> bool:
        """Return whether the pod has terminated and uses no resources (kube-scheduler v1.36 ``IsPodTerminal``)."""
        return self.phase in TERMINAL_PHASES

    def all_conditions(self) -> Iterator[PodCondition]:
        """Yield all conditions, including the standard conditions of a ready pod.

        Only the transition time of Ready is stored. The other standard conditions are yielded with the start time or
        the time of Ready, which is never earlier than their actual transition time.
        """
        yield from self.conditions
        if self.ready:
            yield PodCondition(type="PodScheduled", status="True", since=self.started)
            for type_ in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"):
                yield PodCondition(type=type_, status="True", since=self.ready_since)

    @property
    def priority(self) -> int:
        """Return the priority of the pod, or 0 if the pod has none."""
        return self.spec.priority or 0
