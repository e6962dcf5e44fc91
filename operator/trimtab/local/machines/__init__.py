"""Machines for a local cluster: OpenShift's MachineSet and Machine, and a controller that makes kwok nodes of them.

For trying out and testing what scales machines: there is no cloud behind it, and boot times, failures and quotas come
to order (:mod:`trimtab.local.machines.orders`). All state is in the API's objects, so that the controller may be
killed at any time.
"""
