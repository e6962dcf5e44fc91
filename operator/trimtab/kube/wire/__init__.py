"""Kubernetes objects on the wire: protobuf, JSON and YAML, decoded into the values of :mod:`trimtab.kube.objects`."""
