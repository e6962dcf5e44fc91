"""How one object points at another."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from trimtab.kube.resources import NODES, PODS, Resource


class ObjectReference(Struct, frozen=True, gc=False, kw_only=True):
    """core/v1 ObjectReference: what an event is about. ``namespace`` is empty for cluster-scoped kinds."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"

    @classmethod
    def to(cls, resource: Resource, name: str, *, namespace: str = "", uid: str = "") -> ObjectReference:
        """A reference to an object of a known kind: ``ObjectReference.to(PODS, "web-1", namespace="shop")``."""
        return cls(kind=resource.kind, name=name, namespace=namespace, uid=uid, api_version=resource.api_version)

    def as_json(self) -> dict[str, Any]:
        """As the API writes it, without empty fields."""
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
        }
        return {key: value for key, value in fields.items() if value}

    def __str__(self) -> str:
        return "/".join(part for part in (self.kind, self.namespace, self.name) if part)


def pod_reference(key: str, uid: str) -> ObjectReference:
    """A pod by ``namespace/name``."""
    namespace, _, name = key.partition("/")
    return ObjectReference.to(PODS, name, namespace=namespace, uid=uid)


def node_reference(name: str, uid: str) -> ObjectReference:
    """A node."""
    return ObjectReference.to(NODES, name, uid=uid)
