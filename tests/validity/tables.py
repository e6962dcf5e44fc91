"""Reading the tables, and changing a field of an object."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from tests.validity.objects import HARD, OBJECTS, SOFT

ABSENT: Final = object()
"""Put into a field: take it away."""

_HERE: Final = Path(__file__).parent


class Row(Struct, frozen=True):
    """A line of a table.

    Attributes:
        title: what is special about the row; with the kind it is the id of the test.
        kind: of the object.
        field: as errors write it.
        value: put there, or ABSENT.
        named: the field that the error names.
        says: what the error says of it.
        unasked: the API server cannot be asked by creating the object.
    """

    title: str
    kind: str
    field: str
    value: Any
    named: str = ""
    says: str = ""
    unasked: bool = False

    @property
    def id(self) -> str:
        """For parametrized tests."""
        return f"{self.kind}: {self.title}"

    @property
    def manifest(self) -> dict[str, Any]:
        """The object."""
        return changed(self.kind, self.field, self.value)


def rows(name: str) -> list[Row]:
    """The rows of a table: ``faults`` or ``sound``."""
    return list(_rows((_HERE / f"{name}.txt").read_text()))


def _rows(text: str) -> Iterator[Row]:
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        title, kind, field, value, *more = (cell.strip() for cell in line.split(" | "))
        field = _long(field)
        named, says = [*more, "", ""][:2]
        yield Row(
            title=title.removeprefix("~ "),
            kind=kind,
            field=field,
            value=_value(value),
            named=_long(named).replace("+", field) if named else field,
            says=says,
            unasked=title.startswith("~ "),
        )


def _long(path: str) -> str:
    return path.replace("HARD", HARD).replace("SOFT", SOFT)


def _value(text: str) -> Any:
    if text == "-":
        return ABSENT
    times = re.fullmatch(r"a \* (\d+)", text)
    return "a" * int(times[1]) if times else json.loads(text)


def steps(path: str) -> list[str | int]:
    """``spec.a[0].b[x.y/z]`` as keys and indices."""
    parts = re.findall(r"\[([^\]]*)\]|([^.\[\]]+)", path)
    return [int(index) if index.isdecimal() else index or key for index, key in parts]


def changed(kind: str, path: str, value: Any) -> dict[str, Any]:
    """The good object of a kind with another value in one field; parents that are not there are made."""
    manifest: dict[str, Any] = json.loads(json.dumps(OBJECTS[kind]))  # a deep copy would keep shared parts shared
    place: Any = manifest
    where = steps(path)
    last = where[-1]
    for step, after in pairwise(where):
        if isinstance(place, dict):
            place.setdefault(step, [] if isinstance(after, int) else {})
        place = place[step]
    if value is ABSENT:
        del place[last]
    elif isinstance(place, list) and last == len(place):
        place.append(value)
    else:
        place[last] = value
    return manifest
