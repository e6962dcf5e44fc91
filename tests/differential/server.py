"""Objects on a real API server: put there as they are described, stages of life included, and taken away again.

A description is a manifest as ``kubectl get -o yaml`` would show it: a pod with ``status.phase: Succeeded`` has ended,
an object with a ``deletionTimestamp`` is on its way out. A server takes neither at creation, so both are brought about
afterwards.
"""

from __future__ import annotations

import copy
import http.client
import ssl
import urllib.parse
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from trimtab.kube.api import ApiError, NotFound
from trimtab.kube.resources import Resource
from trimtab.kube.status import error_from_answer
from trimtab.local.cluster import LocalCluster

Manifest = dict[str, Any]

HOLD: Final = "trimtab.dev/hold"
"""The finalizer that keeps what is being deleted."""

RESOURCES: Final = {
    resource.kind: resource
    for resource in (
        Resource("", "v1", "namespaces", "Namespace", namespaced=False),
        Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False),
        Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False),
        Resource("", "v1", "nodes", "Node", namespaced=False),
        Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False),
        Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False),
        Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False),
        Resource("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity"),
        Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
        Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False),
        Resource("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False),
        Resource("", "v1", "services", "Service"),
        Resource("apps", "v1", "replicasets", "ReplicaSet"),
        Resource("apps", "v1", "statefulsets", "StatefulSet"),
        Resource("", "v1", "replicationcontrollers", "ReplicationController"),
        Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
        Resource("", "v1", "pods", "Pod"),
    )
}
"""The kinds that clusters are made of, in an order in which they can be created."""

STATUS_APART: Final = frozenset({"Pod", "PersistentVolume", "PersistentVolumeClaim"})
"""Kinds whose status the server drops at creation and takes by itself."""

_KEPT: Final = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
_GRACE: Final = "600"


def key(manifest: Manifest) -> str:
    """What tells objects apart: ``Kind/namespace/name``."""
    metadata = manifest["metadata"]
    return "/".join(filter(None, (manifest["kind"], metadata.get("namespace"), metadata["name"])))


def path(manifest: Manifest, subresource: str = "") -> str:
    """Where the object lives."""
    metadata = manifest["metadata"]
    resource = RESOURCES[manifest["kind"]]
    return resource.path(metadata["name"], namespace=metadata.get("namespace", ""), subresource=subresource)


class Server:
    """An API server with the admin's rights, on one connection that is kept."""

    def __init__(self, cluster: LocalCluster) -> None:
        layout = cluster.layout
        self._at = urllib.parse.urlsplit(layout.server)
        self._context = ssl.create_default_context(cafile=str(layout.keys.ca))
        self._headers = {"Authorization": f"Bearer {layout.keys.token('admin')}"}
        self._connection = self._connect()

    def close(self) -> None:
        self._connection.close()

    def request(self, method: str, target: str, body: Any = None, *, kind: str = "application/json") -> Any:
        """Send one request.

        Raises:
            ApiError: what the server answers if it is not satisfied.
        """
        payload = None if body is None else msgspec.json.encode(body)
        self._connection.request(method, target, payload, {**self._headers, "Content-Type": kind})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            raise error_from_answer(answer.status, content, phrase=answer.reason)
        return msgspec.json.decode(content)

    def create(self, manifest: Manifest) -> Manifest:
        """Make the object as it is described, and give it as the server has it then.

        Raises:
            AssertionError: the server refuses it; the generator should not have made it.
        """
        wanted = copy.deepcopy(manifest)
        deleted = wanted["metadata"].pop("deletionTimestamp", None)
        kind = wanted["kind"]
        status = wanted.pop("status", None) if kind in STATUS_APART else None
        if deleted and kind != "Pod":
            wanted["metadata"]["finalizers"] = [HOLD]
        try:
            made: Manifest = self.request("POST", path(wanted).rpartition("/")[0], wanted)
            if status and status != {"phase": "Pending"}:  # what it is anyway
                made = self.request("PUT", path(wanted, "status"), {**made, "status": made.get("status", {}) | status})
            if deleted:
                made = self.request("DELETE", f"{path(wanted)}?gracePeriodSeconds={_GRACE}")
        except ApiError as error:
            raise AssertionError(f"{key(manifest)}: {error}\n{msgspec.json.encode(manifest).decode()}") from error
        return made

    def delete(self, manifest: Manifest) -> None:
        """Take the object away, whatever holds it; one that is not there is no error."""
        at = path(manifest)
        try:
            left = self.request("DELETE", f"{at}?gracePeriodSeconds=0&propagationPolicy=Background")
            if left.get("metadata", {}).get("finalizers"):
                patch = {"metadata": {"finalizers": None}}
                self.request("PATCH", at, patch, kind="application/merge-patch+json")
        except NotFound:
            pass

    def objects(self) -> list[Manifest]:
        """All that is there of the kinds above, without what the server makes for itself."""
        found = []
        for resource in RESOURCES.values():
            for manifest in self.request("GET", resource.path())["items"]:
                metadata = manifest["metadata"]
                if metadata["name"] in _KEPT or metadata.get("namespace") in _KEPT:
                    continue
                if resource.kind == "PriorityClass" and metadata["name"].startswith("system-"):
                    continue
                found.append({"apiVersion": resource.api_version, "kind": resource.kind, **manifest})
        return found

    def clear(self) -> None:
        """Take all of it away, namespaces aside: no controller runs that would empty them."""
        for manifest in reversed(self.objects()):
            if manifest["kind"] != "Namespace":
                self.delete(manifest)

    def ensure_namespace(self, manifest: Manifest) -> Manifest:
        """Make a namespace, or give the one that is there the labels of this one."""
        try:
            there: Manifest = self.request("GET", path(manifest))
        except NotFound:
            return self.create(manifest)
        there["metadata"]["labels"] = manifest["metadata"].get("labels", {})
        found: Manifest = self.request("PUT", path(manifest), there)
        return found

    def watch_pods(self) -> Watch:
        """Every change of a pod from now on."""
        version = self.request("GET", "/api/v1/pods?limit=1")["metadata"]["resourceVersion"]
        connection = self._connect()
        connection.request("GET", f"/api/v1/pods?watch=true&resourceVersion={version}", headers=self._headers)
        return Watch(connection)

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(str(self._at.hostname), self._at.port, context=self._context, timeout=60)


class Watch:
    """Changes as the server tells them: each has a ``type`` and an ``object``."""

    def __init__(self, connection: http.client.HTTPSConnection) -> None:
        self._connection = connection
        self._answer = connection.getresponse()

    def __iter__(self) -> Iterator[Manifest]:
        while line := self._answer.readline():
            yield msgspec.json.decode(line)

    def close(self) -> None:
        self._answer.close()
        self._connection.close()
