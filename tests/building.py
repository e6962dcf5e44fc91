"""What all builders of manifests share; tests import :mod:`tests.builders`, which has it all."""

from __future__ import annotations

import copy
from typing import Any, Self, TypeVar

from trimtab.kube.wire.decode import decode_object

T = TypeVar("T")

NOW = "2026-11-20T12:00:00Z"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def selector(labels: dict[str, str] | None = None, **more: str) -> dict[str, Any]:
    """A label selector: ``selector(app="web")``, or with a mapping where a key is no Python name."""
    return {"matchLabels": {**(labels or {}), **more}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    """One expression of a label or node selector: ``expression("disk", "In", "ssd")``."""
    return {"key": key, "operator": operator, "values": list(values)} if values else {"key": key, "operator": operator}


class Builder:
    """What all builders share: metadata."""

    def __init__(self, api_version: str, kind: str, name: str, namespace: str = "") -> None:
        metadata: dict[str, Any] = {"name": name}
        if namespace:
            metadata["namespace"] = namespace
        metadata["uid"] = f"{kind.lower()}-{namespace}-{name}"
        self._manifest: dict[str, Any] = {"apiVersion": api_version, "kind": kind, "metadata": metadata}

    def _at(self, *path: str) -> dict[str, Any]:
        found = self._manifest
        for key in path:
            found = found.setdefault(key, {})
        return found

    def labels(self, labels: dict[str, str] | None = None, **more: str) -> Self:
        self._at("metadata", "labels").update({**(labels or {}), **more})
        return self

    def annotations(self, annotations: dict[str, str]) -> Self:
        self._at("metadata", "annotations").update(annotations)
        return self

    def uid(self, uid: str) -> Self:
        self._at("metadata")["uid"] = uid
        return self

    def created(self, time: str) -> Self:
        self._at("metadata")["creationTimestamp"] = time
        return self

    def deleted(self, time: str = NOW) -> Self:
        self._at("metadata")["deletionTimestamp"] = time
        return self

    def merge(self, **parts: Any) -> Self:
        """Set whatever has no step of its own: ``merge(spec={"priorityClassName": "high"})``, merged by key."""
        _merge(self._manifest, parts)
        return self

    def manifest(self) -> dict[str, Any]:
        return copy.deepcopy(self._manifest)

    def _decode(self, kind: type[T]) -> T:
        value = decode_object(self.manifest())
        assert isinstance(value, kind)
        return value


def _merge(into: dict[str, Any], parts: dict[str, Any]) -> None:
    for key, value in parts.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
