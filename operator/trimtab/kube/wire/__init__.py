"""Decodes Kubernetes objects from protobuf, JSON and YAML into the values of :mod:`trimtab.kube.objects`.

This package exports the functions and types that most callers need. Only the informer uses
:mod:`trimtab.kube.wire.protobuf`, so that the command line starts without loading protobuf.
"""

from trimtab.kube.wire.decode import decode_json, decode_object
from trimtab.kube.wire.files.reader import ClusterObjects, read_objects
from trimtab.kube.wire.intern import Interner

__all__ = ["ClusterObjects", "Interner", "decode_json", "decode_object", "read_objects"]
