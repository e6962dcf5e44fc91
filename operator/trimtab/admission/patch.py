"""JSON patches (RFC 6902) for the differences between two pod specs.

A patch touches only what a rule has changed. Fields that are not decoded, such as fields of later Kubernetes versions
in tolerations and terms, keep their values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from trimtab.admission.requests import (
    Affinity,
    NodeAffinity,
    NodeTerm,
    PatchOperation,
    PodSpec,
    RequiredTerms,
    Requirement,
    Toleration,
    pointer,
)

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def json_patch(before: PodSpec, after: PodSpec, *, path: str = "") -> tuple[PatchOperation, ...]:
    """Return the operations that turn one pod spec into the other; none if they are equal.

    Only ``nodeSelector``, ``tolerations`` and required node affinity are compared: rules change nothing else.

    Args:
        before: the pod spec in the object.
        after: the pod spec with the changes of the rules.
        path: JSON pointer of the pod or pod template in the object, see :attr:`~.requests.Attributes.path`.
    """
    base = f"{path}/spec"
    return (
        *_node_selector(before.node_selector, after.node_selector, f"{base}/nodeSelector"),
        *_affinity(before.affinity, after.affinity, f"{base}/affinity"),
        *_tolerations(before.tolerations, after.tolerations, f"{base}/tolerations"),
    )


def _add(path: str, value: Any) -> PatchOperation:
    """Set a member of an object, whether it exists or not, or insert an item into a list."""
    return PatchOperation("add", path, value)


def _remove(path: str) -> PatchOperation:
    return PatchOperation("remove", path)


def _node_selector(old: dict[str, str] | None, new: dict[str, str] | None, path: str) -> Iterator[PatchOperation]:
    if old is None:
        if new:
            yield _add(path, new)
        return
    new = new or {}
    for key in old.keys() - new.keys():
        yield _remove(path + pointer((key,)))
    for key, value in new.items():
        if old.get(key) != value:
            yield _add(path + pointer((key,)), value)


def _affinity(old: Affinity | None, new: Affinity | None, path: str) -> Iterator[PatchOperation]:
    before, after = (each.node_affinity if each else None for each in (old, new))
    if before == after:
        return
    if old is None:
        yield _add(path, new)
    elif before is None:
        yield _add(f"{path}/nodeAffinity", after)
    else:
        yield from _node_affinity(before, after or NodeAffinity(), f"{path}/nodeAffinity")


def _node_affinity(old: NodeAffinity, new: NodeAffinity, path: str) -> Iterator[PatchOperation]:
    if old.required is None or new.required is None:
        if old.required != new.required:
            yield _set_or_remove(f"{path}/{REQUIRED}", new.required)
        return
    yield from _terms(old.required, new.required, f"{path}/{REQUIRED}/nodeSelectorTerms")


def _terms(old: RequiredTerms, new: RequiredTerms, path: str) -> Iterator[PatchOperation]:
    before, after = old.node_selector_terms or (), new.node_selector_terms or ()
    if len(before) != len(after):
        yield _add(path, after)
        return
    for index, (was, now) in enumerate(zip(before, after, strict=True)):
        yield from _term(was, now, f"{path}/{index}")


def _term(old: NodeTerm, new: NodeTerm, path: str) -> Iterator[PatchOperation]:
    yield from _requirements(old.match_expressions, new.match_expressions, f"{path}/matchExpressions")
    yield from _requirements(old.match_fields, new.match_fields, f"{path}/matchFields")


def _requirements(
    old: Sequence[Requirement] | None, new: Sequence[Requirement] | None, path: str
) -> Iterator[PatchOperation]:
    if old == new or not (old or new):
        return
    if old is not None and new is not None and new[: len(old)] == old:
        for each in new[len(old) :]:
            yield _add(f"{path}/-", each)
    else:
        yield _set_or_remove(path, new)


def _set_or_remove(path: str, value: Any) -> PatchOperation:
    return _remove(path) if value is None else _add(path, value)


def _tolerations(
    old: Sequence[Toleration] | None, new: Sequence[Toleration] | None, path: str
) -> Iterator[PatchOperation]:
    """Yield operations that turn one list into the other, and leave equal items as they are. Runs in linear time."""
    if old is None:
        if new:
            yield _add(path, new)
        return
    new = new or ()
    left_old, left_new = Counter(old), Counter(new)
    length, position, was, now = len(old), 0, 0, 0  # position and length after the operations so far
    while was < len(old) or now < len(new):
        before = old[was] if was < len(old) else None
        after = new[now] if now < len(new) else None
        same = before is not None and before == after
        if before is not None and after is not None and (same or _replaces(before, after, left_old, left_new)):
            if not same:
                yield _set_or_remove(f"{path}/{position}/tolerationSeconds", after.toleration_seconds)
            left_old[before] -= 1
            left_new[after] -= 1
            position, was, now = position + 1, was + 1, now + 1
        elif before is not None and (after is None or not left_new[before] or left_old[after]):
            yield _remove(f"{path}/{position}")
            left_old[before] -= 1
            length, was = length - 1, was + 1
        elif after is not None:
            yield _add(f"{path}/{'-' if position == length else position}", after)
            left_new[after] -= 1
            length, position, now = length + 1, position + 1, now + 1


def _replaces(
    before: Toleration, after: Toleration, left_old: Counter[Toleration], left_new: Counter[Toleration]
) -> bool:
    """Return whether two tolerations, each missing in the other list, differ only in tolerationSeconds."""
    return (
        not left_new[before]
        and not left_old[after]
        and replace(before, toleration_seconds=after.toleration_seconds) == after
    )
