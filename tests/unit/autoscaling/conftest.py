"""Fixtures of the autoscaling tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from trimtab.autoscaling import reconciler
from trimtab.autoscaling.actuation import removal_review

T = TypeVar("T")


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan on the event loop: a virtual clock would run ahead while a thread plans."""

    async def at_once(work: Callable[[], T]) -> T:
        return work()

    monkeypatch.setattr(removal_review, "in_thread", at_once)
    monkeypatch.setattr(reconciler, "in_thread", at_once)
