"""Simulates machines in a local cluster: OpenShift's MachineSet and Machine, and a controller that creates kwok nodes.

Use it to try out and test programs that scale machines. There is no cloud behind it. Boot times, failures and quotas
are configured by annotations (:mod:`trimtab_local.machines.orders`). All state is in the objects, so the controller may
be killed at any time.
"""
