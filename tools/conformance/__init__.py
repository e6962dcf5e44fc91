"""Kubernetes' own e2e specs against its components and against trimtab: ``python -m tools.conformance``.

The specs are those of module k8s.io/kubernetes, in the version of the local control plane's binaries. They run twice on
the same kind of simulated nodes: with kube-scheduler and kube-controller-manager, and with trimtab instead of
kube-scheduler and of kube-controller-manager's node-lifecycle and taint-eviction controllers.
"""
