"""The local control plane of the suite: etcd and an API server, without controllers."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from tests.descheduler_differential.clock import shifted
from tests.descheduler_differential.store import Store
from tests.differential.api_client import Manifest, key
from trimtab.cluster.kinds import KINDS
from trimtab.cluster.loader import load
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.api import NotFound, ServerError
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.kube.resources import Resource
from trimtab_local.cluster import LocalCluster
from trimtab_local.components import Settings
from trimtab_local.versions import APISERVER, ETCD

SETTINGS: Final = Settings(
    components=(ETCD, APISERVER),
    apiserver_args=("--disable-admission-plugins=ServiceAccount",),
)
"""A control plane that only serves objects."""

_READS: Final = 5
_RETRY_SECONDS: Final = 0.5


async def _caught_up(api: Transport, resource: Resource, revision: str) -> None:
    """Wait until the API server's watch cache of a kind has reached etcd's revision.

    The cache receives direct writes to etcd with a delay. Until then it returns objects of the previous cluster, which
    may have the same names.
    """
    fresh = {"resourceVersion": revision, "resourceVersionMatch": "NotOlderThan", "limit": "1"}
    for _ in range(_READS):
        try:
            await api.request("GET", resource.path(), params=fresh)
            return
        except NotFound:  # an optional kind, such as VerticalPodAutoscalers
            return
        except ServerError:  # the API server waits only some seconds
            await asyncio.sleep(_RETRY_SECONDS)
    raise RuntimeError(f"the API server's {resource.plural} cache is older than etcd")


class Environment:
    """Loads generated clusters into a control plane.

    Args:
        cluster: a local control plane with :data:`SETTINGS`.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._store = Store(cluster.layout.etcd)
        self.kubeconfig: Path = cluster.kubeconfig

    def close(self) -> None:
        self._store.close()

    def load(self, objects: Collection[Manifest]) -> tuple[Snapshot, float]:
        """Replace all objects, wait until the API server serves them, and read them as the command line does.

        Returns:
            The snapshot, and the time to which the objects' times were shifted, in seconds since the epoch.

        Raises:
            RuntimeError: the API server does not serve the objects.
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
                f"the API server does not serve {len(missing)} of {len(pods)} pods yet: {missing[:3]}", file=sys.stderr
            )
            time.sleep(_RETRY_SECONDS)
        raise RuntimeError("the API server does not serve the objects in etcd")
