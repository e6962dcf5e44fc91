"""The cluster that both look at: etcd and an API server, and nobody who would change anything."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from tests.descheduler_differential.clock import shifted
from tests.descheduler_differential.store import Store
from tests.differential.server import Manifest, key
from trimtab.cluster.kinds import KINDS
from trimtab.cluster.load import load
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.api import ServerError
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.kube.resources import Resource
from trimtab.local.cluster import LocalCluster
from trimtab.local.components import Settings
from trimtab.local.versions import APISERVER, ETCD

SETTINGS: Final = Settings(
    components=(ETCD, APISERVER),
    apiserver_args=("--disable-admission-plugins=ServiceAccount",),
)
"""What is needed to be asked about pods and nodes."""

_READS: Final = 5
_LATER: Final = 0.5


async def _caught_up(api: Transport, resource: Resource, revision: str) -> None:
    """Wait until the API server's cache of a kind has seen etcd's revision.

    It is told of changes past it a moment later, and until then answers from the cluster before, where a node or a
    budget of the same name may have been another.
    """
    fresh = {"resourceVersion": revision, "resourceVersionMatch": "NotOlderThan", "limit": "1"}
    for _ in range(_READS):
        try:
            await api.request("GET", resource.path(), params=fresh)
            return
        except ServerError:  # it waits for some seconds only
            await asyncio.sleep(_LATER)
    raise RuntimeError(f"the API server's {resource.plural} are older than etcd's")


class World:
    """Loads clusters one after the other.

    Args:
        cluster: a local control plane with :data:`SETTINGS`.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._store = Store(cluster.layout.etcd)
        self.kubeconfig: Path = cluster.kubeconfig

    def close(self) -> None:
        self._store.close()

    def load(self, objects: Collection[Manifest]) -> tuple[Snapshot, float]:
        """Replace all that is there, and read it as our command line does.

        Returns:
            The picture, and the moment that the objects' times were moved to. Reading waits until the API server's
            own caches have followed, so that whoever asks afterwards finds the same.
        """
        now = float(int(time.time()))
        revision = self._store.replace([shifted(manifest, now) for manifest in objects])

        async def read() -> Snapshot:
            async with Transport(load_config(self.kubeconfig)) as api:
                await asyncio.gather(*(_caught_up(api, resource, revision) for resource in KINDS))
                return await load(api)

        pods = {key(manifest).removeprefix("Pod/") for manifest in objects if manifest["kind"] == "Pod"}
        for _ in range(_READS):
            snapshot = asyncio.run(read())
            if snapshot.pods.keys() == pods:
                return snapshot, now
            missing = sorted(pods - snapshot.pods.keys())
            print(
                f"the API server does not show {len(missing)} of {len(pods)} pods yet: {missing[:3]}", file=sys.stderr
            )
            time.sleep(_LATER)
        raise RuntimeError("the API server does not show what is in etcd")
