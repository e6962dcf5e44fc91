"""Decodes Kubernetes objects from protobuf, JSON and YAML into the values of :mod:`trimtab.kube.objects`.

The package imports none of its modules, because planners need only its limits. Only the informer uses
:mod:`trimtab.kube.wire.protobuf`, so that the command line starts without loading protobuf.
"""
