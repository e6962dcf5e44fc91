"""Whatever stands in a foreign policy, it is taken, or refused with a word on where and why; nothing is dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from tests.foreign_policies import NEW, OLD, OPENSHIFT
from trimtab.api.decode import InvalidObject
from trimtab.descheduling.imports import openshift, v1alpha1, v1alpha2
from trimtab.descheduling.imports.draft import Imported

Path = tuple[Any, ...]
FORMATS: list[Any] = [
    pytest.param(v1alpha1.import_policy, OLD, id="v1alpha1"),
    pytest.param(v1alpha2.import_policy, NEW, id="v1alpha2"),
    pytest.param(openshift.import_policy, OPENSHIFT, id="openshift"),
]
DATA: Path = ("matchLabels", "thresholds", "targetThresholds", "metadata")
"""Mappings whose keys are data, or nobody's business."""
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
def test_the_whole_is_good(read: Callable[..., Imported], good: Any) -> None:
    assert read(good).policies


@pytest.mark.parametrize(("read", "good"), FORMATS)
def test_an_unknown_key_is_an_error_wherever_it_stands(read: Callable[..., Imported], good: Any) -> None:
    places = [path for path in paths(good) if isinstance(at(good, path), dict) and not set(path) & set(DATA)]
    if read is openshift.import_policy:
        places.remove(())  # beside apiVersion and spec is the API server's affair
    for path in places:
        spoilt = fresh(good)
        at(spoilt, path)["xyzzy"] = 1
        with pytest.raises(InvalidObject) as refused:
            read(spoilt)
        assert [error.field for error in refused.value.errors] == [written((*path, "xyzzy"))]
        assert "unknown" in refused.value.errors[0].message


@pytest.mark.parametrize(("read", "good"), FORMATS)
def test_no_value_brings_the_reading_down(read: Callable[..., Imported], good: Any) -> None:
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
def test_a_value_of_another_kind_is_blamed_where_it_stands(read: Callable[..., Imported], good: Any) -> None:
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
