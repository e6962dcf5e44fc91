"""Runs a real control plane on this machine: etcd, kube-apiserver, controllers, scheduler and kwok as plain processes.

:class:`trimtab_local.cluster.LocalCluster` starts and stops one. The command line (``trimtab local``), the tests'
fixtures and the demo use it. :mod:`trimtab_local.load` creates nodes and workloads in it.
"""

__version__ = "0.1.0"


class LocalError(Exception):
    """An error at run time. The message tells the user what to do.

    Invalid input raises :class:`trimtab.kube.errors.InputError` instead.
    """
