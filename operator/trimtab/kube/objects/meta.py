"""What object metadata holds beyond names and labels."""

from __future__ import annotations

from msgspec import Struct


class OwnerReference(Struct, frozen=True, gc=False):
    """metav1.OwnerReference. ``controller`` marks the one owner that recreates the pod."""

    kind: str
    name: str
    uid: str = ""
    api_version: str = ""
    controller: bool = False
