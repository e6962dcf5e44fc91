"""Checks that a benchmark did the work that it measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def expect(params: Mapping[str, Any], **wanted: Any) -> None:
    """Exit unless the benchmark did the expected work. Otherwise less work would look like a gain.

    Args:
        params: the reported parameters of the benchmark.
        wanted: the expected values of some parameters, or functions that check a value.

    Raises:
        SystemExit: a value is not the expected one.
    """
    for name, value in wanted.items():
        found = params[name]
        if not (value(found) if callable(value) else found == value):
            raise SystemExit(f"the benchmark did not do what it measures: {name} is {found} in {dict(params)}")
