"""Applies manifests to a snapshot as the API server and the controllers would: workloads create and replace pods.

A Deployment, StatefulSet, ReplicaSet, ReplicationController, Job, CronJob or DaemonSet gets the pods of its template.
If only the number of replicas changes, pods are added or deleted; otherwise all pods are replaced, without the steps of
a rolling update. All other objects are put into the snapshot as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.autoscaling.template.daemon_sets import should_run
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.deployments import HASH_LABEL, workload
from trimtab.cluster.workloads.owners import OwnerKey, owns
from trimtab.cluster.workloads.pod_defaults import PodDefaults
from trimtab.cluster.workloads.replacements import pinned
from trimtab.kube.errors import InputError
from trimtab.kube.objects import (
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PodSpec,
    Toleration,
)
from trimtab.kube.rules.selectors import label_matcher
from trimtab.kube.wire.decode import decode_object

Manifest = Mapping[str, Any]

NEW_HASH: Final = "new"
"""The pod template hash of a Deployment's new ReplicaSet."""

_DEFAULT_TOLERATIONS: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""Keys of the tolerations that admission adds to every pod."""

_DAEMON_TOLERATIONS: Final = (
    *(Toleration(f"node.kubernetes.io/{key}", "Exists", "", "NoExecute") for key in ("not-ready", "unreachable")),
    *(
        Toleration(f"node.kubernetes.io/{key}", "Exists", "", "NoSchedule")
        for key in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable", "network-unavailable")
    ),
)
"""The tolerations that the DaemonSet controller adds (k8s.io/kubernetes v1.36 ``AddOrUpdateDaemonPodTolerations``)."""


class AppliedObjects(Struct, frozen=True):
    """The result of applying manifests.

    Attributes:
        objects: the applied objects as ``Kind/namespace/name``, in order.
        pending: the new pods, which need a node.
        replaced: the nodes of pods that were replaced by new pods of the same name, by ``namespace/name``.
        deleted: pods that were deleted, as ``namespace/name``, sorted.
    """

    objects: tuple[str, ...] = ()
    pending: tuple[Pod, ...] = ()
    replaced: Mapping[str, str] = {}
    deleted: tuple[str, ...] = ()


def apply_objects(snapshot: Snapshot, manifests: Iterable[Manifest], *, now: float) -> AppliedObjects:
    """Apply manifests to a fork of a snapshot.

    Args:
        snapshot: the snapshot to change.
        manifests: the objects, as decoded JSON or YAML.
        now: the time, in seconds since the epoch, at which new pods are created.

    Raises:
        InputError: an object is invalid.
    """
    applying = _Applying(snapshot, now)
    in_order = sorted(manifests, key=lambda each: each.get("kind") in _WORKLOADS or each.get("kind") == "Pod")
    for each in in_order:  # PriorityClasses and claims come before the pods that name them
        applying.apply(each)
    for each in in_order:
        if each.get("kind") == "PodDisruptionBudget":  # counts the new pods
            applying.complete_budget(each)
    return AppliedObjects(
        tuple(applying.objects), tuple(applying.pending), applying.replaced, tuple(sorted(applying.deleted))
    )


def pod_of(snapshot: Snapshot, manifest: Manifest, *, now: float) -> Pod:
    """Return a Pod, or one pod of a workload's template, as it is created: pending, with what admission sets.

    Raises:
        InputError: the object is invalid, or its kind has no pods.
    """
    kind, name, namespace = _identity(manifest)
    if kind == "Pod":
        spec = {key: value for key, value in (manifest.get("spec") or {}).items() if key != "nodeName"}
        made = _decoded({**manifest, "spec": spec, "status": {"phase": "Pending"}})
    elif kind in _WORKLOADS:
        template = _template(manifest, kind)
        made = _decoded(_pod_manifest(template, namespace, f"{name}-1", _owner(kind, name)))
    else:
        raise InputError(f"has no pods; give a Pod or one of {', '.join(_WORKLOADS)}", object=f"{kind}/{name}")
    assert isinstance(made, Pod)
    return PodDefaults.of(snapshot).created(replace(made, node="", created=now))


class _Applying:
    def __init__(self, snapshot: Snapshot, now: float) -> None:
        self._snapshot = snapshot
        self._now = now
        self.objects: list[str] = []
        self.pending: list[Pod] = []
        self.replaced: dict[str, str] = {}
        self.deleted: set[str] = set()

    def apply(self, manifest: Manifest) -> None:
        """Apply one object."""
        kind, name, namespace = _identity(manifest)
        if kind in _WORKLOADS:
            self._apply_workload(manifest, kind, namespace, name)
            self.objects.append(f"{kind}/{namespace}/{name}")
            return
        made = _decoded(manifest)
        if made is None:
            raise InputError(
                f"{kind} is not a kind that what-if applies; it applies {', '.join(_WORKLOADS)}, Pod, "
                "PodDisruptionBudget, PriorityClass and the other kinds of a cluster file",
                object=f"{kind}/{name}",
            )
        if isinstance(made, Pod):
            self._apply_pod(made)
        else:
            self._snapshot.put(made)
        self.objects.append(f"{kind}/{made.key}")

    def complete_budget(self, manifest: Manifest) -> None:
        """Set the status of a PodDisruptionBudget that has none, as the disruption controller would."""
        made = _decoded(manifest)
        if not isinstance(made, PodDisruptionBudget) or manifest.get("status"):
            return
        matches = label_matcher(made.selector)
        pods = [
            pod
            for pod in self._snapshot.pods.values()
            if pod.namespace == made.namespace and not pod.terminal and matches(pod.labels)
        ]
        healthy = sum(bool(pod.node) and pod.deleted is None for pod in pods)
        spec = manifest.get("spec") or {}
        if spec.get("minAvailable") is not None:
            desired = _scaled(spec["minAvailable"], len(pods))
        else:
            desired = max(0, len(pods) - _scaled(spec.get("maxUnavailable", 0), len(pods)))
        self._snapshot.put(
            replace(
                made,
                observed_generation=made.generation,
                expected_pods=len(pods),
                current_healthy=healthy,
                desired_healthy=desired,
                disruptions_allowed=max(0, healthy - desired),
            )
        )

    def _apply_pod(self, pod: Pod) -> None:
        existing = self._snapshot.pods.get(pod.key)
        if existing is not None:
            return  # the fields of a pod that matter cannot be changed
        made = PodDefaults.of(self._snapshot).created(pod)
        self._snapshot.put(made)
        if not made.node:
            self._create(replace(made, created=self._now))

    def _apply_workload(self, manifest: Manifest, kind: str, namespace: str, name: str) -> None:
        template = _template(manifest, kind)
        sample = _decoded(_pod_manifest(template, namespace, name, _owner(kind, name)))
        assert isinstance(sample, Pod)
        sample = PodDefaults.of(self._snapshot).created(sample)
        existing = self._existing(OwnerKey(namespace, kind, name))
        unchanged = bool(existing) and all(_same_template(pod, sample) for pod in existing)
        if not unchanged:
            self._put_selector(manifest, kind, namespace, name)
        if kind == "DaemonSet":
            self._apply_daemon_set(sample, name, existing, unchanged=unchanged)
            return
        number = _replicas(manifest, kind, len(existing))
        if unchanged:
            for pod in existing[number:]:
                self._delete(pod)
            existing_names = {pod.name for pod in existing}
            sample = replace(sample, spec=existing[0].spec, labels=existing[0].labels, owners=existing[0].owners)
            missing = number - len(existing)
        else:
            for pod in existing:
                self._delete(pod)
            existing_names = set()
            missing = number
        claims = _claim_templates(manifest) if kind == "StatefulSet" else ()
        reused = [pod.name for pod in existing] if not unchanged else []
        names = _names(kind, name, existing_names, reused)
        for _ in range(max(0, missing)):
            new = next(names)
            made = replace(sample, name=new, uid=f"new-{namespace}/{new}", created=self._now)
            if claims:
                made = self._with_claims(made, template, claims, kind, name)
            self._create(made)

    def _existing(self, owner: OwnerKey) -> list[Pod]:
        """Return the pods of a workload that run or will run, ordered by name (StatefulSets: by ordinal)."""
        found = [
            pod
            for pod in self._snapshot.pods.values()
            if not pod.terminal and pod.deleted is None and (owns(owner, pod) or workload(pod) == owner)
        ]
        return sorted(found, key=lambda pod: (_ordinal(pod.name), pod.name))

    def _put_selector(self, manifest: Manifest, kind: str, namespace: str, name: str) -> None:
        """Put the controller that selects the pods, which determines how the scheduler spreads them by default."""
        if kind == "Deployment":
            spec = {"selector": (manifest.get("spec") or {}).get("selector")}
            head = {"name": f"{name}-{NEW_HASH}", "namespace": namespace}
            made = _decoded({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": head, "spec": spec})
        elif kind in ("Job", "CronJob"):
            return
        else:
            made = _decoded({**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}})
        if made is not None:
            self._snapshot.put(made)

    def _apply_daemon_set(self, sample: Pod, name: str, existing: Sequence[Pod], *, unchanged: bool) -> None:
        running = {pod.node for pod in existing if unchanged}
        if not unchanged:
            for pod in existing:
                self._delete(pod)
        sample = replace(
            sample, spec=replace(sample.spec, tolerations=(*sample.spec.tolerations, *_DAEMON_TOLERATIONS))
        )
        for slot in self._snapshot.nodes.order().tolist():
            node = self._snapshot.nodes.node(slot)
            if node.name not in running and should_run(sample, node):
                new = f"{name}-{node.name}"
                uid = f"new-{sample.namespace}/{new}"
                self._create(replace(sample, name=new, uid=uid, spec=pinned(sample.spec, node.name), created=self._now))

    def _with_claims(self, pod: Pod, template: Manifest, claims: Sequence[Manifest], kind: str, owner: str) -> Pod:
        """Return a StatefulSet's pod with the claims of its volumeClaimTemplates, which are created if missing."""
        volumes = list((template.get("spec") or {}).get("volumes") or ())
        for each in claims:
            volume = str(each["metadata"]["name"])
            claim = f"{volume}-{pod.name}"
            volumes = [*(v for v in volumes if v.get("name") != volume)]
            volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": claim}})
            if f"{pod.namespace}/{claim}" not in self._snapshot.objects.of(PersistentVolumeClaim):
                head = {"name": claim, "namespace": pod.namespace}
                made = _decoded(
                    {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "metadata": head,
                        "spec": each.get("spec") or {},
                    }
                )
                assert made is not None
                self._snapshot.put(made)
        filled = {**template, "spec": {**(template.get("spec") or {}), "volumes": volumes}}
        made_pod = _decoded(_pod_manifest(filled, pod.namespace, pod.name, _owner(kind, owner)))
        assert isinstance(made_pod, Pod)
        return replace(pod, spec=PodDefaults.of(self._snapshot).created(made_pod).spec)

    def _create(self, pod: Pod) -> None:
        self.pending.append(pod)
        self._snapshot.put(pod)
        self.deleted.discard(pod.key)

    def _delete(self, pod: Pod) -> None:
        self._snapshot.remove(pod)
        self.deleted.add(pod.key)
        if pod.node:
            self.replaced[pod.key] = pod.node


def _identity(manifest: Manifest) -> tuple[str, str, str]:
    metadata = manifest.get("metadata")
    kind = str(manifest.get("kind") or "")
    name = str(metadata.get("name") or "") if isinstance(metadata, Mapping) else ""
    if not kind:
        raise InputError("is required: an object has apiVersion, kind and metadata", field="kind")
    if not name or not isinstance(metadata, Mapping):
        raise InputError("is required", object=kind, field="metadata.name")
    return kind, name, str(metadata.get("namespace") or "default")


def _decoded(manifest: Manifest) -> Any:
    return decode_object(manifest, validated=True)


def _template(manifest: Manifest, kind: str) -> Manifest:
    spec = manifest.get("spec") or {}
    field = "spec.template"
    if kind == "CronJob":
        field = "spec.jobTemplate.spec.template"
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    found = spec.get("template")
    if not isinstance(found, Mapping) or not isinstance(found.get("spec"), Mapping):
        name = manifest["metadata"]["name"]
        raise InputError("is required: a workload has a pod template", object=f"{kind}/{name}", field=field)
    return found


def _replicas(manifest: Manifest, kind: str, existing: int) -> int:
    """Return the number of pods of a workload. One run of a Job or CronJob counts."""
    spec = manifest.get("spec") or {}
    if kind == "CronJob":
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    if kind in ("Job", "CronJob"):
        if spec.get("suspend"):
            return 0
        parallelism = int(spec.get("parallelism", 1))
        return min(parallelism, int(spec.get("completions") or parallelism))
    replicas = spec.get("replicas")
    if replicas is None:
        return existing or 1  # an autoscaler may own the field
    if isinstance(replicas, bool) or not isinstance(replicas, int) or not 0 <= replicas <= 1_000_000:
        name = manifest["metadata"]["name"]
        raise InputError("must be an integer from 0 to 1000000", object=f"{kind}/{name}", field="spec.replicas")
    return replicas


def _pod_manifest(template: Manifest, namespace: str, name: str, owner: Manifest) -> Manifest:
    metadata = template.get("metadata") or {}
    labels = dict(metadata.get("labels") or {})
    if owner["kind"] == "ReplicaSet" and owner["name"].endswith(f"-{NEW_HASH}"):
        labels[HASH_LABEL] = NEW_HASH
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": metadata.get("annotations") or {},
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
        "status": {"phase": "Pending"},
    }


def _owner(kind: str, name: str) -> Manifest:
    api_version = {"ReplicationController": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}.get(kind, "apps/v1")
    if kind == "Deployment":
        kind, name = "ReplicaSet", f"{name}-{NEW_HASH}"
    elif kind == "CronJob":
        kind, name = "Job", f"{name}-1"
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"new-{kind}-{name}", "controller": True}


def _names(kind: str, name: str, taken: set[str], reused: Sequence[str]) -> Iterator[str]:
    """Yield the names of new pods: for a StatefulSet by ordinal, otherwise those of replaced pods first."""
    if kind == "StatefulSet":
        names: Iterable[str] = (f"{name}-{number}" for number in count())
    else:
        names = chain(reused, (f"{name}-{NEW_HASH}-{number}" for number in count(1)))
    return (each for each in names if each not in taken)


def _ordinal(name: str) -> int:
    text = name.rpartition("-")[2]
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _claim_templates(manifest: Manifest) -> Sequence[Manifest]:
    return (manifest.get("spec") or {}).get("volumeClaimTemplates") or ()


def _same_template(pod: Pod, sample: Pod) -> bool:
    """Return whether a pod's template is that of the sample, apart from what admission and controllers add."""
    mine, new = pod.spec, sample.spec
    labels = {key: value for key, value in sample.labels.items() if key != HASH_LABEL}
    return (
        labels.items() <= pod.labels.items()  # controllers add labels
        and mine.requests == new.requests
        and [each.image for each in mine.containers] == [each.image for each in new.containers]
        and mine.node_selector == new.node_selector
        and mine.affinity == new.affinity
        and mine.topology_spread == new.topology_spread
        and mine.host_ports == new.host_ports
        and pod.priority == sample.priority
        and _own_tolerations(mine) == _own_tolerations(new)
    )


def _own_tolerations(spec: PodSpec) -> tuple[Toleration, ...]:
    return tuple(each for each in spec.tolerations if each.key not in _DEFAULT_TOLERATIONS)


def _scaled(value: object, total: int) -> int:
    """Return an integer or a percentage of a total, rounded up as the disruption controller does."""
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdecimal():
        return -(-int(value[:-1]) * total // 100)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise InputError(f"{value!r} is neither a number nor a percentage", field="spec")


_WORKLOADS: Final = (
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "ReplicationController",
    "Job",
    "CronJob",
)
"""The kinds that create pods."""

HAVE_PODS: Final = ("Pod", *_WORKLOADS)
"""The kinds from which :func:`pod_of` takes a pod."""
