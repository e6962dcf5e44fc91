"""The local control plane of the suite: loads generated clusters into a real API server."""

from __future__ import annotations

import asyncio
import copy
import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.differential.api_client import RESOURCES, ApiClient, Manifest, key
from tests.differential.generator.claims import CLAIM_UID
from tests.differential.generator.volumes import OWNER_UID
from tests.differential.kube_scheduler import KubeScheduler, Verdict, settings
from tests.differential.profiles import DEFAULT, converted
from tests.differential.trimtab_placer import TrimtabPlacer
from trimtab.cluster.loader import load
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.placement import registry
from trimtab.placement.registry import Profile
from trimtab_local.cluster import LocalCluster

_ORDER = {kind: number for number, kind in enumerate(RESOURCES)}


@contextmanager
def running_environment(profile: str = DEFAULT) -> Iterator[Environment]:
    """Start a local control plane in which kube-scheduler and trimtab use the same profile."""
    with tempfile.TemporaryDirectory() as directory:
        cluster = LocalCluster(f"differential-{os.getpid()}", directory=Path(directory))
        try:
            cluster.up(settings(Path(directory), profile), nodes=0, die_with_parent=True)
            environment = Environment(cluster, converted(profile))
            try:
                yield environment
            finally:
                environment.close()
        finally:
            cluster.down()


class Environment:
    """Loads generated clusters into a control plane.

    Args:
        cluster: a local control plane with :func:`~tests.differential.kube_scheduler.settings`.
        profile: trimtab's profile, which equals kube-scheduler's.
    """

    def __init__(self, cluster: LocalCluster, profile: Profile = registry.DEFAULT) -> None:
        self._cluster = cluster
        self._profile = profile
        self._uids: dict[str, str] = {}
        self.api = ApiClient(cluster)
        self.scheduler = KubeScheduler(cluster, self.api)

    def close(self) -> None:
        self.scheduler.close()
        self.api.close()

    def load(self, objects: Collection[Manifest]) -> TrimtabPlacer:
        """Replace all objects, and return trimtab's placer with a snapshot of them."""
        self.scheduler.allow_volume_binding(False)
        with self.scheduler.stopped():
            self.api.clear()
            self._uids.clear()
            self._make(objects)
        return TrimtabPlacer(self.snapshot(), self._profile)

    def change(self, deleted: Collection[Manifest], created: Collection[Manifest]) -> list[Manifest]:
        """Delete objects, and create or replace others.

        Returns:
            The created objects, as stored.
        """
        with self.scheduler.stopped():
            for manifest in (*deleted, *created):
                if manifest["kind"] != "Namespace" and self._uids.pop(key(manifest), None):
                    self.api.delete(manifest)
            return self._make(created)

    def schedule(self, manifest: Manifest) -> Verdict:
        """Create a pod, and return kube-scheduler's verdict; a pod that it does not bind is deleted."""
        return self.scheduler.evaluate(_resolved(manifest, self._uids), keep=True)

    def snapshot(self) -> Snapshot:
        """Read the cluster into a snapshot, as the command line does."""

        async def read() -> Snapshot:
            async with Transport(load_config(self._cluster.kubeconfig)) as api:
                return await load(api)

        return asyncio.run(read())

    def _make(self, objects: Collection[Manifest]) -> list[Manifest]:
        made = []
        for manifest in sorted(objects, key=_rank):
            make = self.api.ensure_namespace if manifest["kind"] == "Namespace" else self.api.create
            live = make(_resolved(manifest, self._uids))
            self._uids[key(manifest)] = live["metadata"]["uid"]
            made.append({"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], **live})
        return made


def _rank(manifest: Manifest) -> tuple[int, int]:
    """The order of creation: volumes after their claims, and claims after the pods that own them."""
    owned = any(owner["uid"] == OWNER_UID for owner in manifest["metadata"].get("ownerReferences", ()))
    return (1 if owned else 0), _ORDER[manifest["kind"]]


def _resolved(manifest: Manifest, uids: dict[str, str]) -> Manifest:
    """Replace placeholders with the UIDs of the objects that the manifest refers to."""
    found = copy.deepcopy(manifest)
    namespace = found["metadata"].get("namespace", "")
    for owner in found["metadata"].get("ownerReferences", ()):
        if owner["uid"] == OWNER_UID:
            owner["uid"] = uids.get(f"{owner['kind']}/{namespace}/{owner['name']}", "gone")
    reference = found.get("spec", {}).get("claimRef", {})
    if reference.get("uid") == CLAIM_UID:
        claim = f"PersistentVolumeClaim/{reference['namespace']}/{reference['name']}"
        reference["uid"] = uids.get(claim, "gone")
    return found
