"""Whose pods are meant: the workload above a ReplicaSet, and what its template says."""

from __future__ import annotations

import hashlib

import msgspec

from trimtab.api.eviction_memory import Owned
from trimtab.cluster.workloads import workload
from trimtab.kube.objects import Pod


def template(pod: Pod) -> str:
    """A digest of what schedulers and kubelets read of the pod's template.

    Volumes and resource claims are left out: of a StatefulSet each pod has its own.
    """
    spec = msgspec.structs.replace(pod.spec, volumes=(), resource_claims=())
    return hashlib.sha256(msgspec.json.encode(spec, order="deterministic")).hexdigest()[:16]


def owned(pod: Pod, strategy: str) -> Owned | None:
    """Whose pod it is, as memory has it; ``None`` for a bare pod."""
    owner = workload(pod)
    if owner is None:
        return None
    namespace, kind, name = owner
    return Owned(strategy=strategy, namespace=namespace, kind=kind, name=name, template=template(pod))


def key(owned: Owned) -> tuple[str, str, str, str, str]:
    """What tells entries apart: strategy, namespace, kind, name and template."""
    return owned.strategy, owned.namespace, owned.kind, owned.name, owned.template


def words(owned: Owned) -> str:
    """``Deployment shop/web``."""
    return f"{owned.kind} {owned.namespace}/{owned.name}"
