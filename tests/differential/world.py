"""The cluster that both judge: the objects that were described, brought to a real API server."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Collection

from tests.differential.generator.claims import THE_CLAIM
from tests.differential.generator.volumes import THE_POD
from tests.differential.ours import Ours
from tests.differential.scheduler import Scheduler
from tests.differential.server import RESOURCES, Manifest, Server, key
from trimtab.cluster.load import load
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.local.cluster import LocalCluster
from trimtab.placement.registry import DEFAULT, Profile

_ORDER = {kind: number for number, kind in enumerate(RESOURCES)}


class World:
    """Loads clusters one after the other.

    Args:
        cluster: a local control plane with :func:`~tests.differential.scheduler.settings`.
        profile: what our side goes by, the same as the scheduler's.
    """

    def __init__(self, cluster: LocalCluster, profile: Profile = DEFAULT) -> None:
        self._cluster = cluster
        self._profile = profile
        self._uids: dict[str, str] = {}
        self.server = Server(cluster)
        self.scheduler = Scheduler(cluster, self.server)

    def close(self) -> None:
        self.scheduler.close()
        self.server.close()

    def load(self, objects: Collection[Manifest]) -> Ours:
        """Replace all that is there; our side has its picture of it then."""
        self.scheduler.let_bind_volumes(False)
        with self.scheduler.asleep():
            self.server.clear()
            self._uids.clear()
            self._make(objects)
        return Ours(self.picture(), self._profile)

    def change(self, gone: Collection[Manifest], come: Collection[Manifest]) -> list[Manifest]:
        """Take objects away and make others, some of which take the place of what is there.

        Returns:
            What came, as the server has it.
        """
        with self.scheduler.asleep():
            for manifest in (*gone, *come):
                if manifest["kind"] != "Namespace" and self._uids.pop(key(manifest), None):
                    self.server.delete(manifest)
            return self._make(come)

    def picture(self) -> Snapshot:
        """What is there, as our command line reads it."""

        async def read() -> Snapshot:
            async with Transport(load_config(self._cluster.kubeconfig)) as api:
                return await load(api)

        return asyncio.run(read())

    def _make(self, objects: Collection[Manifest]) -> list[Manifest]:
        made = []
        for manifest in sorted(objects, key=_rank):
            make = self.server.ensure_namespace if manifest["kind"] == "Namespace" else self.server.create
            live = make(_resolved(manifest, self._uids))
            self._uids[key(manifest)] = live["metadata"]["uid"]
            made.append({"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], **live})
        return made


def _rank(manifest: Manifest) -> tuple[int, int]:
    """What is needed comes first: volumes after the claims they are bound to, claims after the pods that own them."""
    owned = any(owner["uid"] == THE_POD for owner in manifest["metadata"].get("ownerReferences", ()))
    return (1 if owned else 0), _ORDER[manifest["kind"]]


def _resolved(manifest: Manifest, uids: dict[str, str]) -> Manifest:
    """With the UIDs that the objects it refers to have got."""
    found = copy.deepcopy(manifest)
    namespace = found["metadata"].get("namespace", "")
    for owner in found["metadata"].get("ownerReferences", ()):
        if owner["uid"] == THE_POD:
            owner["uid"] = uids.get(f"Pod/{namespace}/{owner['name']}", "gone")
    reference = found.get("spec", {}).get("claimRef", {})
    if reference.get("uid") == THE_CLAIM:
        claim = f"PersistentVolumeClaim/{reference['namespace']}/{reference['name']}"
        reference["uid"] = uids.get(claim, "gone")
    return found
