"""Finds namespaces that a policy names and that do not exist, which are usually misspelt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Final

from msgspec import Struct

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.strategies.utilization import HighNodeUtilizationParams, LowNodeUtilizationParams
from trimtab.cluster.snapshot import Snapshot

INCLUDE: Final = "namespaces.include"


class MissingNamespace(Struct, frozen=True):
    """A namespace in a policy's spec that does not exist.

    Attributes:
        field: the field that names it.
        name: its name.
        similar: the existing namespace with the most similar name; empty if there is none.
    """

    field: str
    name: str
    similar: str = ""

    @property
    def message(self) -> str:
        """Return a message that names the field, the namespace and the similar one."""
        hint = f"; did you mean {self.similar}?" if self.similar else ""
        return f"{self.field}: namespace {self.name} does not exist{hint}"


def missing_namespaces(spec: DeschedulerPolicySpec, snapshot: Snapshot) -> tuple[MissingNamespace, ...]:
    """Return the namespaces in ``spec`` that do not exist, in the order of the fields.

    Nothing is returned if the snapshot has no Namespace objects, as some files do: then it is not known which exist.
    A namespace exists in any case if it has pods.
    """
    existing = set(snapshot.namespaces)
    missing = [(field, name) for field, names in _fields(spec) for name in names if name not in existing]
    if not existing or not missing:
        return ()
    existing.update(pod.namespace for pod in snapshot.pods.values())
    found = []
    for field, name in missing:
        if name not in existing:
            near = get_close_matches(name, sorted(existing), n=1, cutoff=0.7)
            found.append(MissingNamespace(field, name, near[0] if near else ""))
    return tuple(found)


def _fields(spec: DeschedulerPolicySpec) -> Iterator[tuple[str, Iterable[str]]]:
    yield INCLUDE, spec.namespaces.include
    yield "namespaces.exclude", spec.namespaces.exclude
    for name, strategy in spec.strategies.enabled():
        params = getattr(strategy, "params", None)
        if isinstance(params, LowNodeUtilizationParams | HighNodeUtilizationParams):
            yield f"strategies.{name}.params.evictableNamespaces.exclude", params.evictable_namespaces.exclude
