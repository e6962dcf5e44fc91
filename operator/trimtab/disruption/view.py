"""What acting needs to see of the cluster as it is now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trimtab.cluster.owners import OwnerKey
from trimtab.kube.objects import Pod


class ClusterView(Protocol):
    """The live picture, as fresh as its watches; :class:`trimtab.cluster.live.LiveCluster` is one.

    It may lag behind the API server: what is decided on it is also guarded by preconditions of the request.
    """

    def pod(self, key: str) -> Pod | None:
        """The pod ``namespace/name`` as last seen; ``None`` where there is none."""
        ...

    def owned_by(self, owner: OwnerKey) -> Sequence[Pod]:
        """The pods of a controller as last seen, in any order."""
        ...
