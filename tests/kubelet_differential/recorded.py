"""Outcomes of the kubelet's eviction manager that are stored, so that the unit test needs no Go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

RECORDED: Final = 60
"""The number of timelines whose outcomes are stored: those of the seeds from 0."""

_FILE: Final = Path(__file__).with_name("outcomes.txt")


def record(outcomes: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Store outcomes: one line per timeline, and per reading the conditions, the evicted pod and its grace period."""
    lines = [
        " ".join(f"{','.join(each['conditions'])}:{each['evicted']}:{each['grace']}" for each in timeline)
        for timeline in outcomes
    ]
    _FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def recorded() -> list[list[dict[str, Any]]]:
    """Return the stored outcomes in the form of :func:`~tests.kubelet_differential.binary.outcomes_of`."""
    return [[_outcome(each) for each in line.split(" ")] for line in _FILE.read_text(encoding="utf-8").splitlines()]


def _outcome(text: str) -> dict[str, Any]:
    conditions, evicted, grace = text.split(":")
    return {"conditions": conditions.split(",") if conditions else [], "evicted": evicted, "grace": int(grace)}
