"""The Lease object of leader election, read and written with compare-and-swap.

client-go calls this a resource lock. :class:`LeaseLock` sends the requests; :class:`Lease` is the value that it reads
and writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from trimtab.kube import verbs
from trimtab.kube.api import Api, NotFound
from trimtab.kube.clock import micro_time
from trimtab.kube.resources import LEASES


class Lease(Struct, frozen=True, kw_only=True):
    """The holder of a Lease, and times from the holder's wall clock, which the protocol does not compare.

    Attributes:
        holder: ``holderIdentity``; ``""`` for none.
        duration: ``leaseDurationSeconds``, within which the holder renews the Lease.
        acquired: ``acquireTime``.
        renewed: ``renewTime``.
        transitions: ``leaseTransitions``, the number of changes of the holder.
        resource_version: resource version of the Lease; ``""`` for a Lease that is not stored yet.
        metadata: metadata of the stored object. They are written back unchanged, because a PUT would remove the fields
            of other clients.
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
        """Decode a Lease from JSON. Missing fields are empty."""
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
        """Return the Lease after ``holder`` has acquired or renewed it. A new holder increments ``transitions``.

        Args:
            holder: the identity of the candidate.
            duration: seconds within which the holder renews the Lease.
            now: the current time in seconds since the epoch.
        """
        time = micro_time(now)
        if holder == self.holder:
            return msgspec.structs.replace(self, duration=duration, renewed=time)
        transitions = self.transitions + 1 if self.resource_version else 0
        return msgspec.structs.replace(
            self, holder=holder, duration=duration, acquired=time, renewed=time, transitions=transitions
        )

    def released(self, *, now: float) -> Lease:
        """Return the Lease without a holder, so that a candidate can acquire it immediately.

        Its duration is one second, because 0 is not valid.
        """
        return msgspec.structs.replace(self, holder="", duration=1, acquired=micro_time(now), renewed=micro_time(now))


class LeaseLock:
    """Reads and writes one Lease object. Writes are compare-and-swap operations on its resource version.

    Args:
        api: the API client.
        namespace: namespace of the Lease.
        name: name of the Lease.
    """

    def __init__(self, api: Api, *, namespace: str, name: str) -> None:
        self._api = api
        self.namespace = namespace
        self.name = name

    def __str__(self) -> str:
        return f"Lease {self.namespace}/{self.name}"

    async def read(self, *, timeout: float) -> Lease | None:
        """Read the Lease; ``None`` if it does not exist."""
        try:
            return Lease.from_json(
                await verbs.get(self._api, LEASES, self.name, namespace=self.namespace, timeout=timeout)
            )
        except NotFound:
            return None

    async def watch(self, changed: Callable[[], None], *, since: str, idle_timeout: float) -> None:
        """Call ``changed`` for each change of the Lease, until the API server ends the watch.

        It does not decode the events, so an error in the stream, or a part of an event, counts as a change.

        Args:
            changed: called for all data that the API server sends.
            since: resource version after which changes are reported; ``""`` to report the current state first.
            idle_timeout: seconds without data after which the watch fails.

        Raises:
            ApiError: the API server rejected the watch.
            Unreachable: the connection failed, or received no data for ``idle_timeout``.
        """
        params = {"watch": "true", "fieldSelector": f"metadata.name={self.name}"}
        params |= {"resourceVersion": since} if since else {}
        path = LEASES.path(namespace=self.namespace)
        async with self._api.stream(path, params=params, idle_timeout=idle_timeout) as chunks:
            async for _ in chunks:
                changed()

    async def write(self, lease: Lease, *, timeout: float) -> Lease:
        """Replace the Lease that was read, or create it, and return it with its new resource version.

        Raises:
            Conflict: the Lease was changed since it was read, or another candidate created it first.
            NotFound: the Lease was deleted since it was read, or its namespace does not exist.
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
