"""Kubernetes objects on the wire: protobuf, JSON and YAML, decoded into the values of :mod:`trimtab.kube.objects`.

What most callers need is here. Protobuf is apart, in :mod:`trimtab.kube.wire.protobuf`: only the informer speaks it,
and the command line should start without loading it.
"""

from trimtab.kube.wire.decode import decode_json, decode_object
from trimtab.kube.wire.files import ClusterObjects, read_objects
from trimtab.kube.wire.intern import Interner

__all__ = ["ClusterObjects", "Interner", "decode_json", "decode_object", "read_objects"]
