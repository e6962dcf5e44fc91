"""Delete: the action that ends a pod's time on a node with NoExecute taints."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Struct

How = Literal["Delete", "Evict"]

BY_EVICTION: Final = "Evict"
"""The pod is evicted, which PodDisruptionBudgets may hold back, and deleted only after the policy's maximumWait."""


class PlannedTaint(Struct, frozen=True, gc=False, omit_defaults=True):
    """A taint as it stands on a node."""

    key: str
    effect: str
    value: str = ""


class PlannedToleration(Struct, frozen=True, gc=False, omit_defaults=True):
    """A toleration as it stands in a pod."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    seconds: int | None = msgspec.field(name="tolerationSeconds", default=None)


class Delete(Struct, frozen=True, gc=False, rename="camel", tag_field="action", tag="Delete", omit_defaults=True):
    """End this pod at ``due`` (RFC 3339), which is ``now`` where its time is over.

    ``taint`` is what ends its time and ``toleration`` by which it bears that until then; left out where none matches.
    ``uid`` is the precondition: a later pod of the same name is never hit. ``how`` is left out but for
    :data:`BY_EVICTION`.
    """

    namespace: str
    pod: str
    node: str
    due: str
    reason: str
    message: str
    taint: PlannedTaint
    toleration: PlannedToleration | None = None
    uid: str = ""
    how: How = "Delete"
