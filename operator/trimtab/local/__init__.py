"""A real control plane on this machine: etcd, kube-apiserver, controllers, scheduler and kwok as plain processes.

:class:`trimtab.local.cluster.LocalCluster` starts and stops one; the command line (``trimtab local``), the tests'
fixtures and the demo all use it. :mod:`trimtab.local.load` fills it with nodes and workloads.
"""
