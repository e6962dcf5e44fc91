"""What tests of autoscaling share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from trimtab.autoscaling import one_pass
from trimtab.autoscaling.actuation import picture

T = TypeVar("T")


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge on the loop: beside a thread a virtual clock would run ahead."""

    async def at_once(work: Callable[[], T]) -> T:
        return work()

    monkeypatch.setattr(picture, "in_thread", at_once)
    monkeypatch.setattr(one_pass, "in_thread", at_once)
