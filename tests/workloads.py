"""Builders of services, of pods' owners, of what admission reads and of Leases; tests import :mod:`tests.builders`."""

from __future__ import annotations

from typing import Any, Self

from tests.building import Builder, selector
from trimtab.kube.objects import (
    NODE_LEASES,
    DaemonSet,
    Job,
    Lease,
    LimitRange,
    PodEvictionRequest,
    ReplicaSet,
    ReplicationController,
    RuntimeClass,
    Service,
    StatefulSet,
    VerticalPodAutoscaler,
)


class ServiceBuilder(Builder):
    """A service without a selector."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__("v1", "Service", name, namespace)
        self._manifest["spec"] = {"ports": [{"port": 80}]}

    def selecting(self, labels: dict[str, str] | None = None, **more: str) -> Self:
        self._at("spec")["selector"] = {**(labels or {}), **more}
        return self

    def build(self) -> Service:
        return self._decode(Service)


class _Templated(Builder):
    """Something with a pod template."""

    def of_pods(self, pod: Builder) -> Self:
        """With the spec of this pod, its labels in addition, and at least one replica."""
        made = pod.manifest()
        made["spec"].pop("nodeName", None)
        self._at("spec", "template", "metadata", "labels").update(made["metadata"].get("labels", {}))
        self._at("spec", "template")["spec"] = made["spec"]
        if "replicas" in self._at("spec"):
            self._at("spec")["replicas"] = 1
        return self


class ReplicationControllerBuilder(_Templated):
    """A ReplicationController of no pods, without a selector."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__("v1", "ReplicationController", name, namespace)
        self._manifest["spec"] = {"replicas": 0}

    def selecting(self, labels: dict[str, str] | None = None, **more: str) -> Self:
        picked = {**(labels or {}), **more}
        self._at("spec").update(selector=picked, template=_template(picked))
        return self

    def build(self) -> ReplicationController:
        return self._decode(ReplicationController)


class _OwnerBuilder(_Templated):
    """An owner of no pods, without a selector."""

    def __init__(self, kind: str, name: str, namespace: str) -> None:
        super().__init__("apps/v1", kind, name, namespace)
        self._manifest["spec"] = {"replicas": 0}

    def selecting(self, labels: dict[str, str] | None = None, **more: str) -> Self:
        picked = {**(labels or {}), **more}
        self._at("spec").update(selector=selector(picked), template=_template(picked))
        return self


class ReplicaSetBuilder(_OwnerBuilder):
    """A ReplicaSet of no pods, without a selector."""

    def build(self) -> ReplicaSet:
        return self._decode(ReplicaSet)


class StatefulSetBuilder(_OwnerBuilder):
    """A StatefulSet of no pods, without a selector."""

    def build(self) -> StatefulSet:
        return self._decode(StatefulSet)


class DaemonSetBuilder(_Templated):
    """A DaemonSet whose pods request nothing and run on every node that they tolerate."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__("apps/v1", "DaemonSet", name, namespace)
        labels = {"app": name}
        self._manifest["spec"] = {"selector": selector(labels), "template": _template(labels)}

    def build(self) -> DaemonSet:
        return self._decode(DaemonSet)


class JobBuilder(_Templated):
    """A Job that has not started."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__("batch/v1", "Job", name, namespace)
        self._manifest["spec"] = {"template": _template({"job-name": name})}

    def finished(self, condition: str = "Complete") -> Self:
        self._at("status")["conditions"] = [{"type": condition, "status": "True"}]
        return self

    def build(self) -> Job:
        return self._decode(Job)


class VerticalPodAutoscalerBuilder(Builder):
    """A VerticalPodAutoscaler of a workload."""

    def __init__(self, name: str, namespace: str, *, kind: str, mode: str | None) -> None:
        super().__init__("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", name, namespace)
        self._manifest["spec"] = {
            "targetRef": {"apiVersion": "batch/v1" if kind == "Job" else "apps/v1", "kind": kind, "name": name}
        }
        if mode is not None:
            self._manifest["spec"]["updatePolicy"] = {"updateMode": mode}

    def build(self) -> VerticalPodAutoscaler:
        return self._decode(VerticalPodAutoscaler)


class EvictionRequestBuilder(Builder):
    """An EvictionRequest of Kubernetes 1.37 (lifecycle.k8s.io/v1alpha1)."""

    def __init__(self, name: str, namespace: str, *, pod: str, requester: str) -> None:
        super().__init__("lifecycle.k8s.io/v1alpha1", "EvictionRequest", name, namespace)
        self._manifest["spec"] = {
            "target": {"pod": {"name": pod, "uid": f"uid-{pod}"}},
            "requester": requester,
            "intent": "Eviction",
        }

    def withdrawn(self) -> Self:
        self._at("spec")["intent"] = "Withdrawn"
        return self

    def ended(self, condition: str) -> Self:
        """With the condition Failed or TargetEvicted."""
        self._at("status")["conditions"] = [{"type": condition, "status": "True", "reason": "Succeeded"}]
        return self

    def build(self) -> PodEvictionRequest:
        return self._decode(PodEvictionRequest)


class LimitRangeBuilder(Builder):
    """A LimitRange without limits."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__("v1", "LimitRange", name, namespace)
        self._manifest["spec"] = {"limits": []}

    def containers(self, **amounts: dict[str, str]) -> Self:
        """Add limits of containers: ``containers(defaultRequest={"cpu": "100m"})``."""
        self._manifest["spec"]["limits"].append({"type": "Container", **amounts})
        return self

    def build(self) -> LimitRange:
        return self._decode(LimitRange)


class RuntimeClassBuilder(Builder):
    """A RuntimeClass without overhead."""

    def __init__(self, name: str) -> None:
        super().__init__("node.k8s.io/v1", "RuntimeClass", name)
        self._manifest["handler"] = name

    def overhead(self, **amounts: str) -> Self:
        self._at("overhead", "podFixed").update(amounts)
        return self

    def build(self) -> RuntimeClass:
        return self._decode(RuntimeClass)


def _template(labels: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "registry.example/app"}]}}


def service(name: str = "web", namespace: str = "shop") -> ServiceBuilder:
    return ServiceBuilder(name, namespace)


def limit_range(name: str = "limits", namespace: str = "shop") -> LimitRangeBuilder:
    return LimitRangeBuilder(name, namespace)


def runtime_class(name: str = "sandbox") -> RuntimeClassBuilder:
    return RuntimeClassBuilder(name)


def replication_controller(name: str = "web", namespace: str = "shop") -> ReplicationControllerBuilder:
    return ReplicationControllerBuilder(name, namespace)


def replica_set(name: str = "web", namespace: str = "shop") -> ReplicaSetBuilder:
    return ReplicaSetBuilder("ReplicaSet", name, namespace)


def stateful_set(name: str = "web", namespace: str = "shop") -> StatefulSetBuilder:
    return StatefulSetBuilder("StatefulSet", name, namespace)


def job(name: str = "batch", namespace: str = "shop") -> JobBuilder:
    return JobBuilder(name, namespace)


def vertical_pod_autoscaler(
    name: str = "web", namespace: str = "shop", *, kind: str = "Deployment", mode: str | None = "InPlaceOrRecreate"
) -> VerticalPodAutoscalerBuilder:
    return VerticalPodAutoscalerBuilder(name, namespace, kind=kind, mode=mode)


def eviction_request(
    name: str = "drain-web-1", namespace: str = "shop", *, pod: str = "web-1", requester: str = "example.com/drainer"
) -> EvictionRequestBuilder:
    return EvictionRequestBuilder(name, namespace, pod=pod, requester=requester)


def daemon_set(name: str = "agent", namespace: str = "kube-system") -> DaemonSetBuilder:
    return DaemonSetBuilder(name, namespace)


class LeaseBuilder(Builder):
    """A node's Lease of 40 seconds, as a kubelet makes it."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__("coordination.k8s.io/v1", "Lease", name, namespace)
        self._manifest["spec"] = {"holderIdentity": name, "leaseDurationSeconds": 40}

    def renewed(self, time: str) -> Self:
        """``2026-11-20T12:00:00.000000Z``."""
        self._at("spec")["renewTime"] = time
        return self

    def build(self) -> Lease:
        return self._decode(Lease)


def lease(name: str, namespace: str = NODE_LEASES) -> LeaseBuilder:
    return LeaseBuilder(name, namespace)
