"""Leases, by which kubelets say that they live (coordination.k8s.io/v1).

The Lease that a leader of our own replicas holds is another thing: see :mod:`trimtab.kube.lease`.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

NODE_LEASES: Final = "kube-node-lease"
"""The namespace in which every kubelet renews the Lease that is named as its node (v1.14 and later)."""


class Lease(Struct, frozen=True, gc=False):
    """A Lease as it was last renewed.

    ``renewed`` is the holder's own clock in seconds since the epoch, to the microsecond: it may be off, so only that it
    changes says that the holder lives. ``duration`` is how many seconds the holder promises to renew within; a kubelet
    renews four times as often.
    """

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    holder: str = ""
    duration: int = 0
    renewed: float | None = None

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"
