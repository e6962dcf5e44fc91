"""Indexes pods by labels, and label selectors and affinity terms by the labels that they require.

So a term is not matched against each pod. A selector that requires ``app=web`` is matched only against pods with this
label, a selector that requires ``app`` to exist only against pods with this key, and a term with namespaces only
against pods in these namespaces. The cost of a new term depends on the number of pods that meet its most selective
requirement, and not on the total number of pods. So the terms of a tenant are cheap unless they match many pods.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from trimtab.kube.objects import LabelSelector

Key = tuple[str, ...]
"""A label (key and value) or only a label key.

Keys of the pod's namespace begin with a marker that is no valid label key.
"""

Keys = tuple[Key, ...]
"""A key set of a term: every pod that the term matches has exactly one of these keys."""

T = TypeVar("T")

_NAMESPACE: Final = "@"
_ABSENT: Final = "!"
_FEW: Final = 16
"""The pods that lack a label are indexed only if fewer than one in this number of pods lack it.

This keeps such lists few and short.
"""


def selector_keys(selector: LabelSelector | None) -> Iterator[Keys]:
    """Yield the alternative key sets by which a selector can be indexed, those with the fewest values first.

    A nil selector matches nothing, so the only key set is empty.
    """
    if selector is None:
        yield ()
        return
    for pair in selector.match_labels.items():
        yield (pair,)
    expressions = selector.match_expressions
    if not expressions:
        return
    for each in sorted((each for each in expressions if each.operator == "In"), key=lambda each: len(each.values)):
        yield tuple((each.key, value) for value in dict.fromkeys(each.values))
    for each in expressions:
        if each.operator == "Exists":
            yield ((each.key,),)


def absent_keys(selector: LabelSelector | None) -> Iterator[str]:
    """Yield the label keys that a pod must not have to match the selector (DoesNotExist)."""
    for each in () if selector is None else selector.match_expressions:
        if each.operator == "DoesNotExist":
            yield each.key


def namespace_keys(namespaces: Iterable[str], selector: LabelSelector | None) -> Iterator[Keys]:
    """Yield the alternative key sets for the namespaces that a term selects by name or by label."""
    names = tuple((_NAMESPACE, name) for name in sorted(namespaces))
    if selector is None:
        yield names
        return
    if names:  # both may select the same namespace, which would then be found twice
        return
    for keys in selector_keys(selector):
        yield tuple(_of_namespace(key) for key in keys)


def pod_keys(namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> list[Key]:
    """Return the index keys of a pod: for its labels, its namespace, and the labels of its namespace."""
    found: list[Key] = [*labels.items(), (_NAMESPACE, namespace)]
    found += [(key,) for key in labels]
    for pair in namespace_labels.items():
        found.append(_of_namespace(pair))
        found.append(_of_namespace(pair[:1]))
    return found


def _of_namespace(key: Key) -> Key:
    return _NAMESPACE, *key, ""


class TermIndex(Generic[T]):
    """Indexes items, each with a term, by the keys that the term requires of pods (:data:`Keys`)."""

    def __init__(self) -> None:
        self._by_key: defaultdict[Key, list[T]] = defaultdict(list)
        self._for_all: list[T] = []
        self._absent: set[str] = set()

    def __bool__(self) -> bool:
        """Return whether the index may contain items."""
        return bool(self._by_key or self._for_all)

    def add(self, keys: Keys | None, item: T) -> None:
        """Add an item with a key set of its term. If ``keys`` is ``None``, the item is considered for every pod.

        Pass ``None`` if no requirement of the term can be indexed.
        """
        if keys is None:
            self._for_all.append(item)
            return
        for key in keys:
            self._by_key[key].append(item)
            if key[0] == _ABSENT:
                self._absent.add(key[1])

    def remove(self, removed: Iterable[tuple[Keys | None, T]]) -> None:
        """Remove items. Each is passed with the keys with which it was added."""
        gone: defaultdict[Key | None, set[int]] = defaultdict(set)
        for keys, item in removed:
            for key in (None,) if keys is None else keys:
                gone[key].add(id(item))
        for key, items in gone.items():
            filed = self._for_all if key is None else self._by_key[key]
            filed[:] = [item for item in filed if id(item) not in items]
            if key is not None and not filed:
                del self._by_key[key]
                if key[0] == _ABSENT:
                    self._absent.discard(key[1])

    def near(self, keys: Iterable[Key], labels: Mapping[str, str]) -> Iterator[T]:
        """Yield the items whose terms may match a pod.

        Args:
            keys: the pod's keys (:func:`pod_keys`).
            labels: the pod's labels.
        """
        yield from self._for_all
        for key in keys:
            yield from self._by_key.get(key, ())
        for absent in self._absent:
            if absent not in labels:
                yield from self._by_key[_ABSENT, absent]


class PodIndex(Generic[T]):
    """Indexes groups of pods by their keys. All pods of a group have the same namespace and labels."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._labels: list[Mapping[str, str]] = []
        self._by_key: defaultdict[Key, list[T]] = defaultdict(list)
        self._without: dict[str, list[T]] = {}

    def add(self, keys: Iterable[Key], labels: Mapping[str, str], item: T) -> None:
        """Add a group of pods.

        Args:
            keys: the pods' keys (:func:`pod_keys`).
            labels: the pods' labels.
            item: the group.
        """
        self._items.append(item)
        self._labels.append(labels)
        for key in keys:
            self._by_key[key].append(item)
        for label, without in self._without.items():
            if label not in labels:
                without.append(item)

    def rarest(self, options: Iterable[Keys], absent: Iterable[str] = ()) -> Keys | None:
        """Return the most selective of several key sets, which is the one whose keys the fewest groups have.

        A label that must be absent is a further alternative if few groups lack it. The result is ``None`` if there is
        no alternative, so that the index cannot narrow the search.

        Args:
            options: the alternative key sets. Every matching group has one key of each set.
            absent: the label keys that no matching group has.
        """
        found: Keys | None = None
        by_key, fewest = self._by_key, len(self._items)
        for keys in options:
            size = sum([len(by_key[key]) for key in keys if key in by_key])
            if size < fewest or found is None:
                found, fewest = keys, size
            if size <= 1:  # further requirements cannot narrow the search
                return found
        for label in absent:
            size = len(self._items) - len(by_key.get((label,), ()))
            if size < fewest and size * _FEW < len(self._items):
                found, fewest = ((_ABSENT, label),), size
        return found

    def near(self, keys: Keys | None) -> Iterator[T]:
        """Yield the groups that have any of the keys, or all groups if ``keys`` is ``None``."""
        if keys is None:
            yield from list(self._items)
            return
        for key in keys:
            yield from self._lacking(key[1]) if key[0] == _ABSENT else self._by_key.get(key, ())

    def _lacking(self, label: str) -> list[T]:
        found = self._without.get(label)
        if found is None:
            found = self._without[label] = [
                item for item, labels in zip(self._items, self._labels, strict=True) if label not in labels
            ]
        return found
