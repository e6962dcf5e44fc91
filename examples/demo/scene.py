"""Creates the demo's cluster: a dozen nodes on which the real scheduler was made to place pods badly.

The nodes are cordoned except those on which pods should run, and labels are changed afterwards. The same happens in
real clusters when nodes fail and recover, and when rules change while pods run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from examples.demo import workloads
from trimtab_local.client import Client
from trimtab_local.install import apply, wait_for
from trimtab_local.nodes import ZONES, node, ready

NAMESPACE: Final = "shop"
NODES: Final = tuple(f"n{number:02d}" for number in range(1, 13))
CAPACITY: Final = {"cpu": "4", "memory": "16Gi", "ephemeral-storage": "100Gi", "pods": "110"}
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/shop/deployments"
MERGE: Final = "application/merge-patch+json"


class Scene:
    """Creates badly placed pods in a cluster through its API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def set(self) -> None:
        """Create the nodes, then each bad placement. All pods run when this returns."""
        self._nodes()
        self._duplicates()
        self._overload()
        self._anti_affinity()
        self._node_affinity()
        self._protected()
        self._open(NODES)

    def _nodes(self) -> None:
        for index, name in enumerate(NODES):
            labels = {"disk": "ssd"} if name in {"n09", "n10"} else {}
            manifest = node(name, zone=ZONES[index % len(ZONES)], capacity=CAPACITY, labels=labels)
            self._client.request("POST", "/api/v1/nodes", manifest)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        apply(self._client, "/api/v1/namespaces", namespace)
        wait_for(self._nodes_ready, "the nodes to be ready")

    def _nodes_ready(self) -> bool:
        return all(ready(each) for each in self._client.request("GET", "/api/v1/nodes")["items"])

    def _duplicates(self) -> None:
        """Create three pods of one Deployment on n01, as after a failure of the other nodes."""
        self._deploy_on(("n01",), workloads.deployment("web", namespace=NAMESPACE, replicas=3))

    def _overload(self) -> None:
        """Create seven single pods on n03 that request 3.5 of its 4 cpus, while other nodes are idle."""
        jobs = [workloads.deployment(f"batch-{number}", namespace=NAMESPACE, cpu="500m") for number in range(1, 8)]
        self._deploy_on(("n03",), *jobs)

    def _anti_affinity(self) -> None:
        """Create two pods on n05 with anti-affinity to noisy pods, and one that becomes noisy after its start."""
        quiet = [
            workloads.deployment(f"quiet-{number}", namespace=NAMESPACE, pod=workloads.avoids({"noisy": "yes"}))
            for number in (1, 2)
        ]
        self._deploy_on(("n05",), *quiet, workloads.deployment("radio", namespace=NAMESPACE))
        for pod in self._pods_of("radio"):
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
            self._client.request("PATCH", path, {"metadata": {"labels": {"noisy": "yes"}}}, content_type=MERGE)

    def _node_affinity(self) -> None:
        """Create a database on n09 because of its ssd label, then move the label to n10."""
        pod = workloads.required("disk", ["ssd"])
        self._deploy_on(("n09",), workloads.deployment("database", namespace=NAMESPACE, pod=pod))
        self._client.request(
            "PATCH", "/api/v1/nodes/n09", {"metadata": {"labels": {"disk": "hdd"}}}, content_type=MERGE
        )

    def _protected(self) -> None:
        """Create pods that are placed as badly but must not be evicted, each for another reason."""
        scratch = {"volumes": [{"name": "scratch", "emptyDir": {}}]}
        guarded = workloads.deployment("guarded", namespace=NAMESPACE, replicas=2)
        self._deploy_on(
            ("n07",), workloads.deployment("scratch", namespace=NAMESPACE, replicas=2, pod=scratch), guarded
        )
        path = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
        apply(self._client, path, workloads.budget("guarded", namespace=NAMESPACE, app="guarded", min_available=2))
        wait_for(self._budget_known, "the disruption controller to see the budget")
        bare = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "bare", "namespace": NAMESPACE, "labels": {"noisy": "yes"}},
            "spec": {**workloads.pod_spec(), "nodeName": "n11"},
        }
        self._client.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", bare)

    def _budget_known(self) -> bool:
        path = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/guarded"
        status = self._client.request("GET", path).get("status", {})
        return bool(status.get("observedGeneration")) and status.get("currentHealthy") == 2

    def _deploy_on(self, names: Iterable[str], *manifests: Mapping[str, Any]) -> None:
        """Create a Deployment while only these nodes are schedulable, and wait until every pod runs."""
        self._open(names)
        for manifest in manifests:
            self._client.request("POST", DEPLOYMENTS, manifest)
        for manifest in manifests:
            name, replicas = manifest["metadata"]["name"], manifest["spec"]["replicas"]
            wait_for(lambda name=name, replicas=replicas: self._available(name) == replicas, f"{name} to run")

    def _available(self, name: str) -> int:
        return int(self._client.request("GET", f"{DEPLOYMENTS}/{name}").get("status", {}).get("availableReplicas", 0))

    def _pods_of(self, app: str) -> list[dict[str, Any]]:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        items: list[dict[str, Any]] = self._client.request("GET", path, params={"labelSelector": f"app={app}"})["items"]
        return items

    def _open(self, names: Iterable[str]) -> None:
        """Uncordon these nodes and cordon the others. The scheduler sees the change before pods are created."""
        wanted = set(names)
        for name in NODES:
            spec = {"spec": {"unschedulable": None if name in wanted else True}}
            self._client.request("PATCH", f"/api/v1/nodes/{name}", spec, content_type=MERGE)
        wait_for(lambda: self._cordons_tainted(wanted), "the cordons to be seen")

    def _cordons_tainted(self, wanted: set[str]) -> bool:
        """Return whether the node-lifecycle controller has updated the unschedulable taints."""
        for each in self._client.request("GET", "/api/v1/nodes")["items"]:
            taints = {taint["key"] for taint in each["spec"].get("taints") or ()}
            if ("node.kubernetes.io/unschedulable" in taints) == (each["metadata"]["name"] in wanted):
                return False
        return True
