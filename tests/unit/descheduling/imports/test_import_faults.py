"""Whatever stands in a foreign policy, it is taken, or refused with a word on where and why; nothing is dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from tests.foreign_policies import NEW, OLD, OPENSHIFT
from trimtab.api.decode import InvalidObject
from trimtab.descheduling.imports import openshift, v1alpha1, v1alpha2
from trimtab.descheduling.imports.draft import ImportResult

Path = tuple[Any, ...]
FORMATS: list[Any] = [
    pytest.param(v1alpha1.import_policy, OLD, id="v1alpha1"),
    pytest.param(v1alpha2.import_policy, NEW, id="v1alpha2"),
    pytest.param(openshift.import_policy, OPENSHIFT, id="openshift"),
]
DATA: Path = ("matchLabels", "thresholds", "targetThresholds", "metadata")
"""Mappings whose keys are data, or are not checked."""
JUNK: list[Any] = [
    None,
    True,
    0,
    -1,
    2.5,
    10**20,
    "",
    "x",
    "…",
    [],
    {},
    ["x"],
    [None],
    [[]],
    [{}],
    {"x": {}},
    {"x": None},
    {1: 2},
]


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in children:
        yield from paths(item, (*path, key))


def fresh(document: Any) -> Any:
    """A copy in which nothing is shared, not even within."""
    return msgspec.json.decode(msgspec.json.encode(document))


def at(document: Any, path: Path) -> Any:
    for step in path:
        document = document[step]
    return document


def written(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


@pytest.mark.parametrize(("read", "good"), FORMATS)
def test_complete_example_is_valid(read: Callable[..., ImportResult], good: Any) -> None:
    assert read(good).policies


def with_unknown_key(good: Any) -> Iterator[tuple[Path, Any]]:
    """Yield each mapping's path, and the document with an unknown key in that mapping."""
    for path in paths(good):
        if isinstance(at(good, path), dict) and not set(path) & set(DATA):
            spoilt = fresh(good)
            at(spoilt, path)["xyzzy"] = 1
            yield path, spoilt


def is_strict(read: Callable[..., ImportResult], path: Path) -> bool:
    """Return whether upstream's decoder, or the API server, refuses unknown keys in a mapping."""
    if read is v1alpha1.import_policy:
        return path == ("strategies",)  # a strategy that it does not know
    return read is openshift.import_policy or "args" in path


@pytest.mark.parametrize(("read", "good"), FORMATS)
def test_unknown_key_is_an_error_where_upstream_is_strict(read: Callable[..., ImportResult], good: Any) -> None:
    tried = 0
    for path, spoilt in with_unknown_key(good):
        if not is_strict(read, path) or (read is openshift.import_policy and not path):
            continue  # keys next to apiVersion and spec concern the API server
        with pytest.raises(InvalidObject) as refused:
            read(spoilt)
        assert [error.field for error in refused.value.errors] == [written((*path, "xyzzy"))]
        assert "unknown" in refused.value.errors[0].message
        tried += 1
    assert tried


@pytest.mark.parametrize(("read", "good"), FORMATS[:2])
def test_unknown_key_is_a_severe_warning_where_upstream_drops_it(read: Callable[..., ImportResult], good: Any) -> None:
    expected = read(good)
    tried = 0
    for path, spoilt in with_unknown_key(good):
        if is_strict(read, path):
            continue
        imported = read(spoilt)
        assert imported.documents == expected.documents
        new = [each for each in imported.warnings if each not in expected.warnings]
        assert [(each.field, each.severity) for each in new] == [(written((*path, "xyzzy")), "high")]
        tried += 1
    assert tried


@pytest.mark.parametrize(("read", "good"), FORMATS)
def test_no_value_crashes_the_conversion(read: Callable[..., ImportResult], good: Any) -> None:
    for path in list(paths(good))[1:]:
        for junk in JUNK:
            spoilt = fresh(good)
            at(spoilt, path[:-1])[path[-1]] = junk
            try:
                imported = read(spoilt)
            except InvalidObject:
                continue
            assert msgspec.json.encode(imported.documents)


@pytest.mark.parametrize(("read", "good"), FORMATS)
def test_wrong_type_is_reported_at_its_path(read: Callable[..., ImportResult], good: Any) -> None:
    """But for the lists and mappings of which nothing is left, which say nothing."""
    for path in paths(good):
        if not path or path[0] in ("apiVersion", "kind", "metadata"):
            continue
        if path[:1] == ("metricsProviders",) and isinstance(at(good, path), str):
            continue
        spoilt = fresh(good)
        at(spoilt, path[:-1])[path[-1]] = {"x": [3]} if not isinstance(at(good, path), dict) else [3]
        with pytest.raises(InvalidObject) as refused:
            read(spoilt)
        fields = [error.field for error in refused.value.errors]
        assert any(field.startswith(written(path)) or written(path).startswith(field) for field in fields), path
