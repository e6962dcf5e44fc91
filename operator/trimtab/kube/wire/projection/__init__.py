"""Projects decoded protobuf, JSON and YAML messages to the values in :mod:`trimtab.kube.objects`."""
