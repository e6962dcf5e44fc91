"""Builds Node objects as a kubelet registers them."""

from __future__ import annotations

import hashlib
import ipaddress
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
"""Label (with any value) of nodes whose kubelet is simulated as unresponsive: its status and Lease are not renewed, and
no pod starts or terminates there. The node recovers when the label is removed.
"""
_NODE_INFO: Final = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "kubeProxyVersion")


def node(
    name: str,
    *,
    zone: str,
    capacity: Mapping[str, str] = DEFAULT_CAPACITY,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Return a node with the well-known labels. All of its capacity is allocatable."""
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
        "status": {"capacity": dict(capacity), "allocatable": dict(capacity), "addresses": addresses(name)},
    }


_NETWORK: Final = ipaddress.ip_network("10.128.0.0/9")
"""Addresses of nodes. Services and pods have addresses in other parts of 10.0.0.0/8."""
_LOOPBACK: Final = ipaddress.ip_network("127.128.0.0/9")
"""Addresses of nodes whose kubelets are simulated by :mod:`trimtab_local.kubelets`."""


def addresses(name: str) -> list[dict[str, str]]:
    """Return ``status.addresses`` of a node."""
    return [{"type": "InternalIP", "address": internal_ip(name)}, {"type": "Hostname", "address": name}]


def internal_ip(name: str) -> str:
    """Return the IPv4 address that a node reports; no server listens there.

    The address depends only on the node's name, so a node that is created again keeps it. Names that end with
    consecutive numbers have consecutive addresses, so no two nodes of a group share one.
    """
    return str(_NETWORK[_number(name)])


def loopback_address(name: str) -> str:
    """Return the loopback address at which the simulated kubelet of a node listens, derived like the other address."""
    return str(_LOOPBACK[_number(name)])


def _number(name: str) -> int:
    prefix = name.rstrip("0123456789")
    start = int.from_bytes(hashlib.sha256(prefix.encode()).digest()[:4], "big")
    return (start + int(name[len(prefix) :] or 0)) % _NETWORK.num_addresses


def as_ready(manifest: dict[str, Any], *, version: str, now: str) -> dict[str, Any]:
    """Return the node as its kubelet reports it after startup: Ready since ``now`` (RFC 3339).

    kwok does the same for each node that is not Ready, but needs minutes for thousands of nodes on a small machine.
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
    """Return the nodes ``node-1`` … ``node-N``, distributed over the zones in turn."""
    return [node(f"{prefix}-{index + 1}", zone=ZONES[index % len(ZONES)]) for index in range(count)]


def reported(live: Mapping[str, Any]) -> bool:
    """Return whether the node's condition Ready is True."""
    conditions = live.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def ready(live: Mapping[str, Any]) -> bool:
    """Return whether the scheduler would use this node: it is Ready and has no not-ready taint."""
    taints = live.get("spec", {}).get("taints") or ()
    return reported(live) and not any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints)
