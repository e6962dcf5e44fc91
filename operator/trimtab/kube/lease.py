"""coordination.k8s.io/v1 Lease as a value, with writes that fail if anybody wrote in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from trimtab.kube import verbs
from trimtab.kube.api import Api, NotFound
from trimtab.kube.clock import micro_time
from trimtab.kube.resources import LEASES


class Lease(Struct, frozen=True, kw_only=True):
    """Who holds it and since when. Times are the holder's wall clock, for people only.

    Attributes:
        holder: ``holderIdentity``; ``""`` for nobody.
        duration: ``leaseDurationSeconds`` that the holder promised to renew within.
        acquired: ``acquireTime``.
        renewed: ``renewTime``.
        transitions: how often the holder changed.
        resource_version: of this state; ``""`` for one that is not stored yet.
        metadata: the stored object's own, written back as it is: a PUT would take away what others put there.
    """

    holder: str = ""
    duration: int = 0
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0
    resource_version: str = ""
    metadata: dict[str, Any] = {}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Lease:
        """From the API's object; whatever is missing is empty."""
        spec = body.get("spec") or {}
        return cls(
            holder=spec.get("holderIdentity") or "",
            duration=spec.get("leaseDurationSeconds") or 0,
            acquired=spec.get("acquireTime") or "",
            renewed=spec.get("renewTime") or "",
            transitions=spec.get("leaseTransitions") or 0,
            resource_version=body["metadata"].get("resourceVersion", ""),
            metadata=body["metadata"],
        )

    def held_by(self, holder: str, *, duration: int, now: float) -> Lease:
        """The same lease taken or renewed by somebody at this time; a change of holder counts as a transition."""
        time = micro_time(now)
        if holder == self.holder:
            return msgspec.structs.replace(self, duration=duration, renewed=time)
        transitions = self.transitions + 1 if self.resource_version else 0
        return msgspec.structs.replace(
            self, holder=holder, duration=duration, acquired=time, renewed=time, transitions=transitions
        )

    def released(self, *, now: float) -> Lease:
        """Held by nobody, so that the next may take it at once (one second, for a duration of 0 is not valid)."""
        return msgspec.structs.replace(self, holder="", duration=1, acquired=micro_time(now), renewed=micro_time(now))


class LeaseLock:
    """One Lease object, read and written by compare-and-swap on its resource version."""

    def __init__(self, api: Api, *, namespace: str, name: str) -> None:
        self._api = api
        self.namespace = namespace
        self.name = name

    def __str__(self) -> str:
        return f"Lease {self.namespace}/{self.name}"

    async def read(self, *, timeout: float) -> Lease | None:
        """What is stored, or ``None`` where nothing is yet."""
        try:
            return Lease.from_json(
                await verbs.get(self._api, LEASES, self.name, namespace=self.namespace, timeout=timeout)
            )
        except NotFound:
            return None

    async def write(self, lease: Lease, *, timeout: float) -> Lease:
        """Store a successor of what was read, and return it with its resource version.

        Raises:
            Conflict: somebody wrote in between, or made the lease first.
            NotFound: somebody deleted it in between, or there is no such namespace.
        """
        metadata = {**lease.metadata, "name": self.name, "namespace": self.namespace}
        body = {
            "metadata": metadata,
            "spec": {
                "holderIdentity": lease.holder,
                "leaseDurationSeconds": lease.duration,
                "acquireTime": lease.acquired,
                "renewTime": lease.renewed,
                "leaseTransitions": lease.transitions,
            },
        }
        if not lease.resource_version:
            return Lease.from_json(
                await verbs.create(self._api, LEASES, body, namespace=self.namespace, timeout=timeout)
            )
        metadata["resourceVersion"] = lease.resource_version
        return Lease.from_json(
            await verbs.replace(self._api, LEASES, self.name, body, namespace=self.namespace, timeout=timeout)
        )
