"""A client that creates objects from manifests with a status and a ``deletionTimestamp``, and deletes them.

A manifest is what ``kubectl get -o yaml`` shows. The API server ignores ``status`` and ``deletionTimestamp`` at
creation, so the client updates the status and deletes the object in further requests.
"""

from __future__ import annotations

import copy
import http.client
import ssl
import urllib.parse
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from trimtab.kube.api import ApiError, NotFound, error_from_response
from trimtab.kube.resources import Resource
from trimtab_local.cluster import LocalCluster

Manifest = dict[str, Any]

HOLD: Final = "trimtab.dev/hold"
"""The finalizer that keeps deleted objects in the terminating state."""

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
"""The kinds in generated clusters, in the order of creation."""

WITH_STATUS: Final = frozenset({"Pod", "PersistentVolume", "PersistentVolumeClaim"})
"""Kinds with a status subresource."""

_SYSTEM_NAMES: Final = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
_GRACE: Final = "600"


def key(manifest: Manifest) -> str:
    """The unique key of an object: ``Kind/namespace/name``, or ``Kind/name``."""
    metadata = manifest["metadata"]
    return "/".join(filter(None, (manifest["kind"], metadata.get("namespace"), metadata["name"])))


def path(manifest: Manifest, subresource: str = "") -> str:
    """The URL path of an object."""
    metadata = manifest["metadata"]
    resource = RESOURCES[manifest["kind"]]
    return resource.path(metadata["name"], namespace=metadata.get("namespace", ""), subresource=subresource)


class ApiClient:
    """A client with the admin's permissions and one persistent connection."""

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
            ApiError: the API server answered with status 400 or higher.
        """
        payload = None if body is None else msgspec.json.encode(body)
        self._connection.request(method, target, payload, {**self._headers, "Content-Type": kind})
        response = self._connection.getresponse()
        content = response.read()
        if response.status >= 400:
            raise error_from_response(response.status, content, phrase=response.reason)
        return msgspec.json.decode(content)

    def create(self, manifest: Manifest) -> Manifest:
        """Create the object, including its status and deletion, and return it as stored.

        Raises:
            AssertionError: the API server rejects the object, so the generator has a bug.
        """
        wanted = copy.deepcopy(manifest)
        deleted = wanted["metadata"].pop("deletionTimestamp", None)
        kind = wanted["kind"]
        status = wanted.pop("status", None) if kind in WITH_STATUS else None
        if deleted and kind != "Pod":
            wanted["metadata"]["finalizers"] = [HOLD]
        try:
            made: Manifest = self.request("POST", path(wanted).rpartition("/")[0], wanted)
            if status and status != {"phase": "Pending"}:  # the default
                made = self.request("PUT", path(wanted, "status"), {**made, "status": made.get("status", {}) | status})
            if deleted:
                made = self.request("DELETE", f"{path(wanted)}?gracePeriodSeconds={_GRACE}")
        except ApiError as error:
            raise AssertionError(f"{key(manifest)}: {error}\n{msgspec.json.encode(manifest).decode()}") from error
        return made

    def delete(self, manifest: Manifest) -> None:
        """Delete the object and its finalizers; a missing object is no error."""
        at = path(manifest)
        try:
            left = self.request("DELETE", f"{at}?gracePeriodSeconds=0&propagationPolicy=Background")
            if left.get("metadata", {}).get("finalizers"):
                patch = {"metadata": {"finalizers": None}}
                self.request("PATCH", at, patch, kind="application/merge-patch+json")
        except NotFound:
            pass

    def objects(self) -> list[Manifest]:
        """List the objects of all :data:`RESOURCES`, without those that the API server creates."""
        found = []
        for resource in RESOURCES.values():
            for manifest in self.request("GET", resource.path())["items"]:
                metadata = manifest["metadata"]
                if metadata["name"] in _SYSTEM_NAMES or metadata.get("namespace") in _SYSTEM_NAMES:
                    continue
                if resource.kind == "PriorityClass" and metadata["name"].startswith("system-"):
                    continue
                found.append({"apiVersion": resource.api_version, "kind": resource.kind, **manifest})
        return found

    def clear(self) -> None:
        """Delete all objects except namespaces, because no namespace controller runs."""
        for manifest in reversed(self.objects()):
            if manifest["kind"] != "Namespace":
                self.delete(manifest)

    def ensure_namespace(self, manifest: Manifest) -> Manifest:
        """Create a namespace, or set the labels of an existing one."""
        try:
            existing: Manifest = self.request("GET", path(manifest))
        except NotFound:
            return self.create(manifest)
        existing["metadata"]["labels"] = manifest["metadata"].get("labels", {})
        found: Manifest = self.request("PUT", path(manifest), existing)
        return found

    def watch_pods(self) -> Watch:
        """Watch all pods from the current resourceVersion on."""
        version = self.request("GET", "/api/v1/pods?limit=1")["metadata"]["resourceVersion"]
        connection = self._connect()
        connection.request("GET", f"/api/v1/pods?watch=true&resourceVersion={version}", headers=self._headers)
        return Watch(connection)

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(str(self._at.hostname), self._at.port, context=self._context, timeout=60)


class Watch:
    """Watch events, each with a ``type`` and an ``object``."""

    def __init__(self, connection: http.client.HTTPSConnection) -> None:
        self._connection = connection
        self._response = connection.getresponse()

    def __iter__(self) -> Iterator[Manifest]:
        while line := self._response.readline():
            yield msgspec.json.decode(line)

    def close(self) -> None:
        self._response.close()
        self._connection.close()
