"""All providers: an API of machines is spoken by what stands here."""

from __future__ import annotations

from typing import Final

from trimtab.autoscaling.groups import NodeGroup
from trimtab.autoscaling.providers import cluster_api, machine_api
from trimtab.autoscaling.providers.provider import Dialect, Provider
from trimtab.autoscaling.providers.replicas import Replicas
from trimtab.kube.api import Api

DIALECTS: Final[tuple[Dialect, ...]] = (machine_api.DIALECT, cluster_api.DIALECT)


def providers(api: Api) -> dict[str, Provider]:
    """The providers by the API group of the groups that they act on."""
    return {dialect.api_group: Replicas(api, dialect) for dialect in DIALECTS}


def api_group_of(group: NodeGroup) -> str:
    """The API group of a node group: which provider acts on it."""
    return group.api_version.partition("/")[0]
