"""OpenShift's Machine API: MachineSets."""

from __future__ import annotations

from typing import Final

from trimtab.autoscaling.groups.keys import DELETE_MACHINE
from trimtab.autoscaling.providers.provider import Dialect
from trimtab.kube.objects.machine import MACHINE_API

DIALECT: Final = Dialect(
    api_group=MACHINE_API,
    scalable={"MachineSet": "machinesets"},
    machines="machines",
    mark=DELETE_MACHINE[MACHINE_API][0],  # the older one counts with the policy Oldest only
    failed_tie=True,  # machine-api-operator ranks both the same, with every delete policy
)
"""machine.openshift.io."""
