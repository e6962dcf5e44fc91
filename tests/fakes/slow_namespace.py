"""A clock that goes on while pods of a namespace are judged, so that tests of deadlines count work and not time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from trimtab.kube.objects import Pod
from trimtab.placement.feasibility import FeasibilityChecker


class SlowNamespace:
    """Time in which judging a pod of one namespace takes long, and of any other hardly anything.

    Args:
        monkeypatch: of the test.
        namespace: the slow one.
        seconds: that its pods take each time that one is judged.

    Attributes:
        judged: how often pods were judged, by namespace.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, namespace: str = "tenant", seconds: float = 1.0) -> None:
        self.now = 0.0
        self.judged: Counter[str] = Counter()
        for name in ("feasible", "node_verdicts", "unschedulable_message"):
            monkeypatch.setattr(
                FeasibilityChecker, name, self._slow(getattr(FeasibilityChecker, name), namespace, seconds)
            )

    def __call__(self) -> float:
        return self.now

    def _slow(self, real: Any, namespace: str, seconds: float) -> Any:
        def judge(judge: FeasibilityChecker, pod: Pod, *arguments: Any) -> Any:
            self.judged[pod.namespace] += 1
            self.now += seconds if pod.namespace == namespace else 0.001
            return real(judge, pod, *arguments)

        return judge
