"""Reads Kubernetes objects from JSON and YAML files."""

from trimtab.kube.wire.files.reader import ClusterObjects, read_objects

__all__ = ["ClusterObjects", "read_objects"]
