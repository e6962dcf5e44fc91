"""A MachineSet or Machine as it was read, whole: a controller writes parts of it back, and copies its template."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from trimtab.kube.errors import InputError

FINALIZER: Final = "machine.machine.openshift.io"
"""The Machine API's own: a machine is gone only once its node is."""


class Live(Struct, frozen=True):
    """One object; the properties read what is asked for often."""

    manifest: dict[str, Any]

    @property
    def metadata(self) -> dict[str, Any]:
        """``metadata``."""
        found: dict[str, Any] = self.manifest["metadata"]
        return found

    @property
    def spec(self) -> dict[str, Any]:
        """``spec``; empty where there is none."""
        return self.manifest.get("spec") or {}

    @property
    def status(self) -> dict[str, Any]:
        """``status``; empty where there is none."""
        return self.manifest.get("status") or {}

    @property
    def name(self) -> str:
        """The name."""
        return str(self.metadata["name"])

    @property
    def namespace(self) -> str:
        """The namespace."""
        return str(self.metadata["namespace"])

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def uid(self) -> str:
        """The UID."""
        return str(self.metadata.get("uid", ""))

    @property
    def resource_version(self) -> str:
        """The resource version."""
        return str(self.metadata.get("resourceVersion", ""))

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations."""
        return self.metadata.get("annotations") or {}

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels."""
        return self.metadata.get("labels") or {}

    @property
    def created(self) -> float:
        """Seconds since the epoch."""
        text = self.metadata.get("creationTimestamp")
        return datetime.fromisoformat(text).timestamp() if text else 0.0

    @property
    def deleting(self) -> bool:
        """Whether it has a deletion timestamp."""
        return "deletionTimestamp" in self.metadata

    @property
    def failed(self) -> bool:
        """Whether a machine's status has an error."""
        return bool(self.status.get("errorReason") or self.status.get("errorMessage"))

    @property
    def node(self) -> str:
        """The name of a machine's node; empty until it has joined."""
        return str((self.status.get("nodeRef") or {}).get("name", ""))

    @property
    def controller(self) -> Mapping[str, str]:
        """The owner reference of what controls it; empty where nothing does."""
        owners = self.metadata.get("ownerReferences") or ()
        return next((owner for owner in owners if owner.get("controller")), {})


def decode(raw: bytes | Raw) -> Live:
    """Read an object's JSON.

    Raises:
        InputError: it is no object with a name.
    """
    try:
        return Live(msgspec.json.decode(raw, type=dict[str, Any]))
    except msgspec.DecodeError as error:
        raise InputError(str(error)) from None
