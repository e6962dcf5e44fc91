"""What the evictor reads from the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trimtab.cluster.workloads.owners import OwnerKey
from trimtab.kube.objects import Pod


class ClusterView(Protocol):
    """Read access to cached pods; :class:`trimtab.cluster.lister.Lister` implements it.

    The cache may lag behind the API server. The preconditions of eviction requests guard against that.
    """

    def pod(self, key: str) -> Pod | None:
        """Return the pod with the key ``namespace/name``; ``None`` if it does not exist."""
        ...

    def owned_by(self, owner: OwnerKey) -> Sequence[Pod]:
        """Return the pods of a controller, in any order."""
        ...

    def desired_replicas(self, owner: OwnerKey) -> int | None:
        """Return the desired number of a controller's pods; ``None`` if it is unknown."""
        ...
