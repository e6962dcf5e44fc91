"""Node objects, as a kubelet would register them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

ZONES: Final = ("zone-a", "zone-b", "zone-c")
REGION: Final = "local"
DEFAULT_CAPACITY: Final[Mapping[str, str]] = {
    "cpu": "8",
    "memory": "32Gi",
    "ephemeral-storage": "100Gi",
    "pods": "110",
}
DEFAULT_NODES: Final = 3
SILENT: Final = "local.trimtab.dev/silent"
"""Label of nodes whose kubelet is to be dead, whatever its value: neither status nor Lease comes, no pod starts or ends
there. Without it the node is back."""
_NODE_INFO: Final = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "kubeProxyVersion")


def node(
    name: str,
    *,
    zone: str,
    capacity: Mapping[str, str] = DEFAULT_CAPACITY,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """A node with the well-known labels; capacity is allocatable, for nothing runs beside the pods."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/region": REGION,
                "topology.kubernetes.io/zone": zone,
                **(labels or {}),
            },
        },
        "spec": {"taints": [dict(taint) for taint in taints]} if taints else {},
        "status": {"capacity": dict(capacity), "allocatable": dict(capacity)},
    }


def as_ready(manifest: dict[str, Any], *, version: str, now: str) -> dict[str, Any]:
    """The node as its kubelet would report it after some time: Ready since ``now`` (RFC 3339).

    kwok does the same for each node that it finds not Ready; for thousands that takes minutes on a small machine.
    """
    pressure = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
    conditions = [("Ready", "True", "KubeletReady"), *((name, "False", f"No{name}") for name in pressure)]
    return manifest | {
        "status": {
            **manifest["status"],
            "phase": "Running",  # what kwok's heartbeat looks for
            "conditions": [
                {
                    "type": name,
                    "status": status,
                    "reason": reason,
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
                for name, status, reason in conditions
            ],
            "addresses": [{"type": "Hostname", "address": manifest["metadata"]["name"]}],
            "nodeInfo": dict.fromkeys(_NODE_INFO, "")
            | {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kubeletVersion": version,
                "containerRuntimeVersion": "kwok://",
            },
        }
    }


def numbered(count: int, *, prefix: str = "node") -> list[dict[str, Any]]:
    """``node-1`` … ``node-N``, the zones in turn."""
    return [node(f"{prefix}-{index + 1}", zone=ZONES[index % len(ZONES)]) for index in range(count)]


def reported(live: Mapping[str, Any]) -> bool:
    """Whether the node's kubelet says that it is Ready."""
    conditions = live.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def ready(live: Mapping[str, Any]) -> bool:
    """Whether the scheduler would use this node: Ready, and no longer tainted as not ready."""
    taints = live.get("spec", {}).get("taints") or ()
    return reported(live) and not any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints)
