"""The TaintManager among the files of ``--policy``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from trimtab.kube.errors import InputError

if TYPE_CHECKING:
    from trimtab.api.plan import Plan
    from trimtab.api.taint_manager import TaintManager
    from trimtab.cluster.snapshot import Snapshot

MANAGER: Final = ("TaintManager", "trimtab.dev/v1alpha1")


class TaintManagers:
    """What documents say of taints: one TaintManager, as there is one for a cluster."""

    kinds: Final = (MANAGER,)

    def __init__(self) -> None:
        self.manager: TaintManager | None = None
        self._place = ""

    def __bool__(self) -> bool:
        return self.manager is not None

    def take(self, manifest: Mapping[str, Any], *, source: str, place: str) -> bool:
        """Read a document if it is a TaintManager; tells whether it is.

        Args:
            manifest: the document.
            source: where it came from, for messages about its fields.
            place: the same with its place in the file.

        Raises:
            InputError: it cannot be used, or is there twice.
        """
        if (str(manifest.get("kind")), str(manifest.get("apiVersion"))) != MANAGER:
            return False
        from trimtab.api.decode import decode_taint_manager

        manager = decode_taint_manager(manifest, source=source)
        if self.manager is not None:
            raise InputError(f"is there twice: in {self._place} and in {place}", object=f"{MANAGER[0]}/{manager.name}")
        self.manager, self._place = manager, place
        return True

    def complete(self, plan: Plan, snapshot: Snapshot, *, now: float) -> Plan:
        """The plan with what is done to nodes' taints and what becomes of each pod on a tainted node.

        Without a TaintManager it is as it was.
        """
        if self.manager is None:
            return plan
        from msgspec.structs import replace

        from trimtab.tainting.planned import plan_taints

        found = plan_taints(snapshot, self.manager.spec, now=now)
        return replace(plan, taints=found.taints, deletions=found.deletions, kept=(*plan.kept, *found.kept))
