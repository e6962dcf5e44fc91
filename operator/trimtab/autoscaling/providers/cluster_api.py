"""Cluster API: MachineDeployments, MachineSets and MachinePools."""

from __future__ import annotations

from typing import Final

from trimtab.autoscaling.groups.keys import DELETE_MACHINE
from trimtab.autoscaling.providers.provider import Dialect
from trimtab.kube.objects.machine import CLUSTER_API

DIALECT: Final = Dialect(
    api_group=CLUSTER_API,
    scalable={
        "MachineDeployment": "machinedeployments",
        "MachineSet": "machinesets",
        "MachinePool": "machinepools",
    },
    machines="machines",
    mark=DELETE_MACHINE[CLUSTER_API][0],
    failed_tie=False,  # its ranks put marked machines before unhealthy ones
)
"""cluster.x-k8s.io."""
