"""coordination.k8s.io/v1 Lease."""

from __future__ import annotations

from msgspec import field

from trimtab.kube.wire.json.base import Message, Time
from trimtab.kube.wire.json.meta import ObjectMeta


class LeaseSpec(Message):
    """coordination.k8s.io/v1 LeaseSpec."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    renew_time: Time | None = None


class Lease(Message):
    """coordination.k8s.io/v1 Lease."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: LeaseSpec = field(default_factory=LeaseSpec)
