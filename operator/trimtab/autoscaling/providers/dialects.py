"""The supported machine APIs, and the provider of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trimtab.autoscaling.groups import NodeGroup
from trimtab.autoscaling.groups.annotations import DELETE_MACHINE
from trimtab.autoscaling.providers.provider import Dialect, Provider
from trimtab.autoscaling.providers.replicas import ReplicasProvider
from trimtab.kube import verbs
from trimtab.kube.api import Api
from trimtab.kube.objects.machine import CLUSTER_API, MACHINE_API

MACHINE_API_DIALECT: Final = Dialect(
    api_group=MACHINE_API,
    scalable={"MachineSet": "machinesets"},
    machines="machines",
    mark=DELETE_MACHINE[MACHINE_API][0],  # the older annotation only works with delete policy Oldest
    failed_tie=True,  # machine-api-operator ranks both equally, with every delete policy
)
"""OpenShift's Machine API, machine.openshift.io: MachineSets."""

CLUSTER_API_DIALECT: Final = Dialect(
    api_group=CLUSTER_API,
    scalable={
        "MachineDeployment": "machinedeployments",
        "MachineSet": "machinesets",
        "MachinePool": "machinepools",
    },
    machines="machines",
    mark=DELETE_MACHINE[CLUSTER_API][0],
    failed_tie=False,  # Cluster API ranks marked machines before unhealthy ones
)
"""Cluster API, cluster.x-k8s.io: MachineDeployments, MachineSets and MachinePools."""

DIALECTS: Final[tuple[Dialect, ...]] = (MACHINE_API_DIALECT, CLUSTER_API_DIALECT)


def providers(api: Api) -> dict[str, Provider]:
    """Return the provider of each supported machine API, by API group."""
    return {dialect.api_group: ReplicasProvider(api, dialect) for dialect in DIALECTS}


def api_group_of(group: NodeGroup) -> str:
    """Return the API group of a node group, which determines its provider."""
    return group.api_version.partition("/")[0]


def failed_machines_tie(group: NodeGroup) -> bool:
    """Return whether the group's controller gives failed and marked machines the same priority for deletion."""
    return any(each.failed_tie for each in DIALECTS if each.api_group == api_group_of(group))


async def annotate_group(api: Api, group: NodeGroup, annotations: Mapping[str, str | None], *, timeout: float) -> None:
    """Set or remove annotations of a group's object with a merge patch.

    A merge patch works even if the object has no annotations. It includes the UID, so that the API server rejects it if
    another object now has the same name.

    Args:
        api: the API server.
        group: a group with an object.
        annotations: values to set; ``None`` removes an annotation. Other annotations are unchanged.
        timeout: timeout of the request in seconds.

    Raises:
        ApiError: the API server rejects the patch.
        Unreachable: no response was received, and the annotations may have been set.
    """
    dialect = next(each for each in DIALECTS if each.api_group == api_group_of(group))
    patch = {"metadata": {"uid": group.uid, "annotations": dict(annotations)}}
    await verbs.merge_patch(api, dialect.scaled(group), group.name, patch, namespace=group.namespace, timeout=timeout)
