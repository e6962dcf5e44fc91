"""The signs by which a node that goes is known, and whose they are.

A removal writes the taint, its cordon and two annotations in one request: :data:`REMOVING` has the taint's own value,
so that a later process knows the taint for ours, and :data:`CORDONED_BY` is there only where we cordoned. What an admin
or another autoscaler has written is never taken away.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from trimtab.kube.objects import Node
from trimtab.kube.rules.taints import NO_SCHEDULE, TO_BE_DELETED

REMOVING: Final = "trimtab.dev/removing"
"""On nodes: the value of the taint :data:`~trimtab.kube.rules.taints.TO_BE_DELETED` that we set."""

CORDONED_BY: Final = "trimtab.dev/cordoned-by"
"""On nodes: who cordoned, where that was us; a node that an admin had cordoned is without it."""

CORDONED_BY_US: Final = "cluster-autoscaler"

DELAY_DELETION: Final = "delay-deletion.cluster-autoscaler.kubernetes.io/"
"""Prefix of annotations on nodes: while one is there its deletion waits, for a while."""

_SECONDS: Final = re.compile(r"[0-9]{1,11}")

Operation = Mapping[str, Any]
"""An operation of a JSON patch (RFC 6902)."""


class Signs(Struct, frozen=True):
    """What of these is on a node.

    Attributes:
        tainted: the value of the taint; ``None`` without one.
        removing: the value of :data:`REMOVING`; empty without it.
        cordoned: whether it says that we cordoned.
    """

    tainted: str | None = None
    removing: str = ""
    cordoned: bool = False

    @property
    def ours(self) -> bool:
        """Whether the taint is ours."""
        return self.tainted is not None and self.tainted == self.removing

    @property
    def foreign(self) -> bool:
        """Whether the taint is somebody else's."""
        return self.tainted is not None and self.tainted != self.removing

    @property
    def any(self) -> bool:
        """Whether there is anything of ours, the taint or what is left of a removal."""
        return bool(self.removing) or self.cordoned

    @property
    def since(self) -> float | None:
        """When our taint was set, in seconds since the epoch; ``None`` where it is not there or says no time."""
        return float(self.removing) if self.ours and _SECONDS.fullmatch(self.removing) else None


def signs_of(node: Node) -> Signs:
    """The signs on a node of the picture."""
    return _signs([(taint.key, taint.value) for taint in node.taints], node.annotations)


class Seen(Struct, frozen=True):
    """What a patch of a node builds on.

    Attributes:
        uid: of the node.
        taints: as they stand in its spec.
        unschedulable: whether it is cordoned.
        annotations: those that are known.
        annotated: whether it has any, also such as nobody keeps.
    """

    uid: str
    taints: tuple[Mapping[str, Any], ...]
    unschedulable: bool
    annotations: Mapping[str, str]
    annotated: bool

    @property
    def signs(self) -> Signs:
        """The signs on it."""
        return _signs([(each.get("key", ""), each.get("value", "")) for each in self.taints], self.annotations)

    @classmethod
    def guess(cls, node: Node) -> Seen:
        """A node of the picture; nearly every live one has some annotation, and if not, the patch is refused."""
        taints = tuple({"key": each.key, "value": each.value, "effect": each.effect} for each in node.taints)
        return cls(node.uid, taints, node.unschedulable, node.annotations, annotated=True)

    @classmethod
    def read(cls, manifest: Mapping[str, Any]) -> Seen:
        """A node as the API server has it."""
        metadata, spec = manifest["metadata"], manifest.get("spec") or {}
        annotations = metadata.get("annotations") or {}
        return cls(
            uid=metadata.get("uid", ""),
            taints=tuple(spec.get("taints") or ()),
            unschedulable=bool(spec.get("unschedulable")),
            annotations=annotations,
            annotated=bool(annotations),
        )


Change = Callable[[Seen], Sequence[Operation]]
"""What to write, given what is there; nothing where it is as it should be."""


def marking(at: int, *, cordon: bool) -> Change:
    """Taint a node, and cordon it if asked to and nobody has.

    The taint is appended, so that nobody's edit of the others is lost; where one of its key and effect has come up in
    between, the API server refuses the second.

    Args:
        at: the taint's time, in seconds since the epoch.
        cordon: whether to cordon.
    """
    value = str(at)

    def change(seen: Seen) -> list[Operation]:
        if seen.signs.ours and seen.signs.removing == value:
            return []  # an earlier try went through, and its answer was lost
        taint = {"key": TO_BE_DELETED, "value": value, "effect": NO_SCHEDULE}
        annotations = {REMOVING: value}
        operations: list[Operation] = [_test("/metadata/uid", seen.uid)]
        if cordon and not seen.unschedulable:
            operations += [_test("/spec/unschedulable", None), _add("/spec/unschedulable", True)]
            annotations[CORDONED_BY] = CORDONED_BY_US
        operations += annotating(seen, annotations)
        operations += tainting(seen, taint)
        return operations

    return change


def returning(seen: Seen) -> list[Operation]:
    """Take all away that is ours, and nothing else."""
    signs = seen.signs
    if not signs.any:
        return []
    operations: list[Operation] = [_test("/metadata/uid", seen.uid)]
    if signs.ours:
        operations += untainting(seen, TO_BE_DELETED)
    if signs.cordoned:
        operations += unannotating(seen, CORDONED_BY)
        if seen.unschedulable:
            operations += [_test("/spec/unschedulable", True), {"op": "remove", "path": "/spec/unschedulable"}]
    if signs.removing:
        operations += unannotating(seen, REMOVING)
    return operations


def annotating(seen: Seen, annotations: Mapping[str, str]) -> list[Operation]:
    """Set annotations."""
    if not seen.annotated:
        return [_test("/metadata/annotations", None), _add("/metadata/annotations", dict(annotations))]
    return [_add(_annotation(key), value) for key, value in annotations.items()]


def unannotating(seen: Seen, key: str) -> list[Operation]:
    """Take an annotation away, if it still says what it said."""
    path = _annotation(key)
    return [_test(path, seen.annotations[key]), {"op": "remove", "path": path}]


def tainting(seen: Seen, taint: Mapping[str, Any]) -> list[Operation]:
    """Append a taint."""
    if not seen.taints:
        return [_test("/spec/taints", None), _add("/spec/taints", [taint])]
    return [_add("/spec/taints/-", taint)]


def untainting(seen: Seen, key: str) -> list[Operation]:
    """Take the first taint of this key away, if it still stands where it stood."""
    for place, taint in enumerate(seen.taints):
        if taint.get("key") == key:
            path = f"/spec/taints/{place}"
            tests = [_test(f"{path}/key", key)]
            if taint.get("value"):
                tests.append(_test(f"{path}/value", taint["value"]))
            return [*tests, {"op": "remove", "path": path}]
    return []


def _signs(taints: Sequence[tuple[str, str]], annotations: Mapping[str, str]) -> Signs:
    return Signs(
        tainted=next((value for key, value in taints if key == TO_BE_DELETED), None),
        removing=annotations.get(REMOVING, ""),
        cordoned=annotations.get(CORDONED_BY) == CORDONED_BY_US,
    )


def _annotation(key: str) -> str:
    return f"/metadata/annotations/{key.replace('~', '~0').replace('/', '~1')}"


def _test(path: str, value: Any) -> Operation:
    return {"op": "test", "path": path, "value": value}


def _add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}
