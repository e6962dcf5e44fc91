"""MachineSets and Machines as the controller reads them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from trimtab_local.machines.machine import FINALIZER, LiveObject

NOW = 1_800_000_000.0
NAMESPACE = "openshift-machine-api"
LABELS = {"machine.openshift.io/cluster-api-machineset": "workers"}


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def owner(replicas: int = 1, *, annotations: dict[str, str] | None = None, **spec: Any) -> LiveObject:
    template = {"metadata": {"labels": LABELS}, "spec": {"metadata": {"labels": {"role": "worker"}}}}
    return LiveObject(
        {
            "metadata": {
                "name": "workers",
                "namespace": NAMESPACE,
                "uid": "set-1",
                "resourceVersion": "10",
                "generation": 3,
                "annotations": annotations or {},
            },
            "spec": {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template} | spec,
        }
    )


def machine(name: str = "workers-a", **given: Any) -> LiveObject:
    """``age`` in seconds, ``node``, ``failed``, ``deleting``, ``mark`` (the annotation's key), ``annotations``."""
    annotations = dict(given.get("annotations", {}))
    if "mark" in given:
        annotations[given["mark"]] = "2026-11-20T12:00:00Z"
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-{name}",
        "resourceVersion": "11",
        "creationTimestamp": stamp(NOW - given.get("age", 60.0)),
        "labels": given.get("labels", LABELS),
        "annotations": annotations,
        "finalizers": given.get("finalizers", [FINALIZER]),
        "ownerReferences": [{"kind": "MachineSet", "name": "workers", "uid": "set-1", "controller": True}],
    }
    if given.get("deleting"):
        metadata["deletionTimestamp"] = stamp(NOW)
    status: dict[str, Any] = {}
    if given.get("node"):
        status["nodeRef"] = {"kind": "Node", "name": given["node"]}
    if given.get("failed"):
        status |= {"phase": "Failed", "errorReason": "CreateError", "errorMessage": "no"}
    if given.get("phase"):
        status["phase"] = given["phase"]
    return LiveObject({"metadata": metadata, "spec": given.get("spec", {}), "status": status})
