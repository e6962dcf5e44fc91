"""Builders of Kubernetes manifests: ``pod("web-1").on("n1").cpu("250m").build()``.

A builder contains a manifest. ``manifest()`` returns it as a dictionary. ``build()`` decodes it into the type that
planners use, with the decoder of cluster files. All other methods return the builder.
"""

from __future__ import annotations

from typing import Any, Self

from tests.building import HOSTNAME, NOW, ZONE, Builder, expression, selector
from tests.machines import (
    cluster_machine,
    cluster_machine_set,
    machine,
    machine_deployment,
    machine_pool,
    machine_set,
)
from tests.volumes import (
    attachment,
    capacity,
    csi_driver,
    csi_node,
    pv,
    pvc,
    storage_class,
)
from tests.workloads import (
    daemon_set,
    eviction_request,
    job,
    lease,
    limit_range,
    replica_set,
    replication_controller,
    runtime_class,
    service,
    stateful_set,
    vertical_pod_autoscaler,
)
from trimtab.kube.objects import Namespace, Node, Pod, PodDisruptionBudget, PriorityClass

__all__ = [
    "HOSTNAME",
    "NOW",
    "ZONE",
    "attachment",
    "budget",
    "capacity",
    "cluster",
    "cluster_machine",
    "cluster_machine_set",
    "csi_driver",
    "csi_node",
    "daemon_set",
    "eviction_request",
    "expression",
    "job",
    "lease",
    "limit_range",
    "machine",
    "machine_deployment",
    "machine_pool",
    "machine_set",
    "namespace",
    "node",
    "pod",
    "priority_class",
    "pv",
    "pvc",
    "replica_set",
    "replication_controller",
    "runtime_class",
    "selector",
    "service",
    "stateful_set",
    "storage_class",
    "vertical_pod_autoscaler",
]


class PodBuilder(Builder):
    """A pod with one container ``main``; pending, or running after ``on``."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__("v1", "Pod", name, namespace)
        self._manifest["spec"] = {"containers": [{"name": "main", "image": "registry.example/app:1"}]}
        self._manifest["status"] = {"phase": "Pending"}

    @property
    def _main(self) -> dict[str, Any]:
        return self._manifest["spec"]["containers"][0]  # type: ignore[no-any-return]

    def _request(self, resource: str, request: str, limit: str | None) -> Self:
        resources = self._main.setdefault("resources", {})
        resources.setdefault("requests", {})[resource] = request
        if limit is not None:
            resources.setdefault("limits", {})[resource] = limit
        return self

    def on(self, node: str) -> Self:
        self._at("spec")["nodeName"] = node
        return self.phase("Running")

    def cpu(self, request: str, limit: str | None = None) -> Self:
        return self._request("cpu", request, limit)

    def memory(self, request: str, limit: str | None = None) -> Self:
        return self._request("memory", request, limit)

    def requests(self, resources: dict[str, str] | None = None, **more: str) -> Self:
        """Set requests of any resource: ``requests({"example.com/gpu": "1"})``."""
        for resource, amount in {**(resources or {}), **more}.items():
            self._request(resource, amount, None)
        return self

    def limits(self, resources: dict[str, str] | None = None, **more: str) -> Self:
        self._main.setdefault("resources", {}).setdefault("limits", {}).update({**(resources or {}), **more})
        return self

    def image(self, image: str) -> Self:
        self._main["image"] = image
        return self

    def container(self, name: str, **fields: Any) -> Self:
        """Add a container with the given fields of the manifest."""
        self._manifest["spec"]["containers"].append({"name": name, **fields})
        return self

    def init_container(self, name: str, **fields: Any) -> Self:
        """An init container; ``restartPolicy="Always"`` makes it a sidecar."""
        self._manifest["spec"].setdefault("initContainers", []).append({"name": name, **fields})
        return self

    def owned_by(
        self, kind: str, name: str, *, api_version: str | None = None, uid: str = "", controller: bool = True
    ) -> Self:
        known = {"ReplicationController": "v1", "Node": "v1", "Job": "batch/v1"}
        reference = {
            "apiVersion": api_version or known.get(kind, "apps/v1"),
            "kind": kind,
            "name": name,
            "uid": uid or f"{kind.lower()}-{self._manifest['metadata']['namespace']}-{name}",
            "controller": controller,
        }
        self._at("metadata").setdefault("ownerReferences", []).append(reference)
        return self

    def priority(self, value: int, class_name: str = "") -> Self:
        self._at("spec")["priority"] = value
        if class_name:
            self._at("spec")["priorityClassName"] = class_name
        return self

    def tolerates(
        self, key: str = "", value: str = "", effect: str = "", *, seconds: int | None = None, operator: str = ""
    ) -> Self:
        """Add a toleration: by default Equal with a value, else Exists; without a key, of all taints."""
        toleration: dict[str, Any] = {"operator": operator or ("Equal" if value else "Exists")}
        toleration |= {name: text for name, text in {"key": key, "value": value, "effect": effect}.items() if text}
        if seconds is not None:
            toleration["tolerationSeconds"] = seconds
        self._at("spec").setdefault("tolerations", []).append(toleration)
        return self

    def node_selector(self, labels: dict[str, str] | None = None, **more: str) -> Self:
        self._at("spec", "nodeSelector").update({**(labels or {}), **more})
        return self

    def node_affinity(self, *expressions: dict[str, Any], fields: tuple[dict[str, Any], ...] = ()) -> Self:
        """Add a required node affinity term (terms are ORed): ``node_affinity(expression("disk", "In", "ssd"))``."""
        term: dict[str, Any] = {}
        if expressions:
            term["matchExpressions"] = list(expressions)
        if fields:
            term["matchFields"] = list(fields)
        required = self._at("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
        required.setdefault("nodeSelectorTerms", []).append(term)
        return self

    def prefers_nodes(self, weight: int, *expressions: dict[str, Any]) -> Self:
        """A preferred node affinity term."""
        affinity = self._at("spec", "affinity", "nodeAffinity")
        affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", []).append(
            {"weight": weight, "preference": {"matchExpressions": list(expressions)}}
        )
        return self

    def affinity(self, topology_key: str = HOSTNAME, *, preferred: int | None = None, **term: Any) -> Self:
        """A pod affinity term; the selector is the pod's own labels unless ``labelSelector=`` says otherwise."""
        return self._pod_term("podAffinity", topology_key, preferred, term)

    def anti_affinity(self, topology_key: str = HOSTNAME, *, preferred: int | None = None, **term: Any) -> Self:
        """A pod anti-affinity term; the selector is the pod's own labels unless ``labelSelector=`` says otherwise.

        Args:
            topology_key: the node label.
            preferred: the weight of a preferred term; required without.
            term: more fields of the term as in the manifest: ``labelSelector``, ``namespaces``, ``namespaceSelector``.
        """
        return self._pod_term("podAntiAffinity", topology_key, preferred, term)

    def _pod_term(self, kind: str, topology_key: str, preferred: int | None, fields: dict[str, Any]) -> Self:
        own = {"labelSelector": selector(dict(self._at("metadata", "labels")))}
        term = {**own, **fields, "topologyKey": topology_key}
        affinity = self._at("spec", "affinity", kind)
        if preferred is None:
            affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", []).append(term)
        else:
            affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", []).append(
                {"weight": preferred, "podAffinityTerm": term}
            )
        return self

    def spread(
        self, topology_key: str = ZONE, *, max_skew: int = 1, when: str = "DoNotSchedule", **fields: Any
    ) -> Self:
        """A topology spread constraint over the pod's own labels unless ``labelSelector=`` says otherwise."""
        constraint = {
            "maxSkew": max_skew,
            "topologyKey": topology_key,
            "whenUnsatisfiable": when,
            "labelSelector": selector(dict(self._at("metadata", "labels"))),
            **fields,
        }
        self._at("spec").setdefault("topologySpreadConstraints", []).append(constraint)
        return self

    def host_port(self, port: int, protocol: str = "TCP", ip: str = "") -> Self:
        taken = {"containerPort": port, "hostPort": port, "protocol": protocol}
        if ip:
            taken["hostIP"] = ip
        self._main.setdefault("ports", []).append(taken)
        return self

    def volume(self, kind: str, /, **source: Any) -> Self:
        """A volume: ``volume("emptyDir")``, ``volume("persistentVolumeClaim", claimName="data")``."""
        volumes = self._at("spec").setdefault("volumes", [])
        volumes.append({"name": f"volume-{len(volumes)}", kind: source})
        return self

    def claim(self, name: str, *, read_only: bool = False) -> Self:
        """A volume of a claim."""
        return self.volume("persistentVolumeClaim", claimName=name, **({"readOnly": True} if read_only else {}))

    def ephemeral(self, name: str, **spec: Any) -> Self:
        """An ephemeral volume, whose claim is named after pod and volume; ``spec`` is that of the claim."""
        template = {"spec": {"accessModes": ["ReadWriteOnce"], **spec}}
        volume = {"name": name, "ephemeral": {"volumeClaimTemplate": template}}
        self._at("spec").setdefault("volumes", []).append(volume)
        return self

    def grace_period(self, seconds: int) -> Self:
        self._at("spec")["terminationGracePeriodSeconds"] = seconds
        return self

    def phase(self, phase: str, reason: str = "") -> Self:
        self._at("status")["phase"] = phase
        if reason:
            self._at("status")["reason"] = reason
        return self

    def condition(self, kind: str, status: str, *, reason: str = "", message: str = "", since: str = NOW) -> Self:
        found = {"type": kind, "status": status, "lastTransitionTime": since}
        found |= {name: text for name, text in {"reason": reason, "message": message}.items() if text}
        conditions = self._at("status").setdefault("conditions", [])
        conditions[:] = [condition for condition in conditions if condition["type"] != kind]
        conditions.append(found)
        return self

    def ready(self, *, since: str = NOW) -> Self:
        """Running and ready."""
        self._at("status")["phase"] = "Running"
        return self.condition("Ready", "True", since=since)

    def started(self, time: str = NOW) -> Self:
        self._at("status")["startTime"] = time
        return self

    def restarted(self, times: int) -> Self:
        self._at("status")["containerStatuses"] = [{"name": "main", "restartCount": times}]
        return self

    def container_state(self, state: str = "", *, exit_code: int | None = None, of: str = "container") -> Self:
        """Set a container state: running without a reason, waiting with one, terminated with an exit code.

        Args:
            state: the reason, e.g. ``CrashLoopBackOff``.
            exit_code: of a container that has ended.
            of: ``container``, ``initContainer`` or ``ephemeralContainer``.
        """
        recorded: dict[str, Any] = {"running": {}}
        if exit_code is not None:
            recorded = {"terminated": {"exitCode": exit_code, "reason": state}}
        elif state:
            recorded = {"waiting": {"reason": state}}
        statuses = self._at("status").setdefault(f"{of}Statuses", [])
        name = "main" if of == "container" else of
        statuses.append({"name": f"{name}-{len(statuses)}" if statuses else name, "state": recorded})
        return self

    def unschedulable(self, message: str = "0/1 nodes are available: 1 Insufficient cpu.", *, since: str = NOW) -> Self:
        """Set the pod's PodScheduled condition to False with kube-scheduler's message."""
        pending = self.phase("Pending")
        return pending.condition("PodScheduled", "False", reason="Unschedulable", message=message, since=since)

    def mirror(self) -> Self:
        """Make the pod the mirror pod of a static pod."""
        return self.annotations({"kubernetes.io/config.mirror": "1", "kubernetes.io/config.source": "file"})

    def build(self) -> Pod:
        return self._decode(Pod)


class NodeBuilder(Builder):
    """A ready node with 4 CPUs, 16 Gi of memory, 110 pods, and its name as the hostname label."""

    def __init__(self, name: str) -> None:
        super().__init__("v1", "Node", name)
        self.labels({HOSTNAME: name})
        self._manifest["spec"] = {}
        self._manifest["status"] = {}
        self.allocatable(cpu="4", memory="16Gi", pods=110)
        self.condition("Ready", "True")

    def allocatable(self, resources: dict[str, str | int] | None = None, **more: str | int) -> Self:
        """Set amounts in allocatable and capacity; other resources are unchanged."""
        for part in ("allocatable", "capacity"):
            self._at("status", part).update({**(resources or {}), **more})
        return self

    def capacity(self, resources: dict[str, str | int] | None = None, **more: str | int) -> Self:
        """Set only the capacity; call it after ``allocatable``."""
        self._at("status", "capacity").update({**(resources or {}), **more})
        return self

    def zone(self, zone: str) -> Self:
        return self.labels({ZONE: zone})

    def taint(self, key: str, value: str = "", effect: str = "NoSchedule", *, added: str | None = None) -> Self:
        taint = {"key": key, "effect": effect}
        if value:
            taint["value"] = value
        if added is not None:
            taint["timeAdded"] = added
        self._at("spec").setdefault("taints", []).append(taint)
        return self

    def cordoned(self) -> Self:
        """Unschedulable, with the taint that the node controller adds."""
        self._at("spec")["unschedulable"] = True
        return self.taint("node.kubernetes.io/unschedulable")

    def condition(self, kind: str, status: str, *, reason: str = "", since: str = NOW) -> Self:
        found = {"type": kind, "status": status, "lastTransitionTime": since, "lastHeartbeatTime": since}
        if reason:
            found["reason"] = reason
        conditions = self._at("status").setdefault("conditions", [])
        conditions[:] = [condition for condition in conditions if condition["type"] != kind]
        conditions.append(found)
        return self

    def not_ready(self, *, since: str = NOW) -> Self:
        return self.condition("Ready", "False", reason="KubeletNotReady", since=since)

    def image(self, *names: str, size: int = 0) -> Self:
        """Add an image on the node with its names and its size in bytes."""
        self._at("status").setdefault("images", []).append({"names": list(names), "sizeBytes": size})
        return self

    def provider_id(self, provider_id: str) -> Self:
        self._at("spec")["providerID"] = provider_id
        return self

    def build(self) -> Node:
        return self._decode(Node)


class BudgetBuilder(Builder):
    """A PodDisruptionBudget with an up-to-date status that allows one disruption."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__("policy/v1", "PodDisruptionBudget", name, namespace)
        self._manifest["metadata"]["generation"] = 1
        self._manifest["spec"] = {}
        self._manifest["status"] = {"observedGeneration": 1}
        self.allowing(1)

    def selecting(self, labels: dict[str, str] | None = None, **more: str) -> Self:
        self._at("spec")["selector"] = selector(labels, **more)
        return self

    def allowing(self, disruptions: int, *, healthy: int = 3, expected: int = 3) -> Self:
        self._at("status").update(
            disruptionsAllowed=disruptions,
            currentHealthy=healthy,
            desiredHealthy=healthy - disruptions,
            expectedPods=expected,
        )
        return self

    def disrupted(self, *pods: str, time: str = NOW) -> Self:
        self._at("status", "disruptedPods").update(dict.fromkeys(pods, time))
        return self

    def unhealthy_policy(self, policy: str) -> Self:
        self._at("spec")["unhealthyPodEvictionPolicy"] = policy
        return self

    def unobserved(self) -> Self:
        """Set a generation that the disruption controller has not observed."""
        self._at("metadata")["generation"] = 2
        return self

    def build(self) -> PodDisruptionBudget:
        return self._decode(PodDisruptionBudget)


class NamespaceBuilder(Builder):
    """A namespace."""

    def __init__(self, name: str) -> None:
        super().__init__("v1", "Namespace", name)

    def build(self) -> Namespace:
        return self._decode(Namespace)


class PriorityClassBuilder(Builder):
    """A priority class."""

    def __init__(self, name: str, value: int) -> None:
        super().__init__("scheduling.k8s.io/v1", "PriorityClass", name)
        self._manifest["value"] = value

    def by_default(self) -> Self:
        self._manifest["globalDefault"] = True
        return self

    def build(self) -> PriorityClass:
        return self._decode(PriorityClass)


def pod(name: str = "web-1", namespace: str = "shop") -> PodBuilder:
    return PodBuilder(name, namespace)


def node(name: str = "n1") -> NodeBuilder:
    return NodeBuilder(name)


def budget(name: str = "web", namespace: str = "shop") -> BudgetBuilder:
    return BudgetBuilder(name, namespace)


def namespace(name: str = "shop") -> NamespaceBuilder:
    return NamespaceBuilder(name)


def priority_class(name: str, value: int) -> PriorityClassBuilder:
    return PriorityClassBuilder(name, value)


def cluster(*builders: Builder) -> dict[str, Any]:
    """A v1 List of objects, as ``kubectl get … -o json`` prints it."""
    return {"apiVersion": "v1", "kind": "List", "items": [builder.manifest() for builder in builders]}
