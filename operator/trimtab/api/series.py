"""Gauges with labels that are shown as of one moment, and reasons as labels.

What was shown before and is not now is taken away: a group or a zone that is gone has no series any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from trimtab.api import reasons

OTHER: Final = "Other"
"""The label of codes that are not trimtab's own, such as those of machines' APIs: there may be any number of them."""

_CODES: Final = frozenset(value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str))


class Series:
    """A gauge whose series are set all at once.

    Args:
        name: of the metric.
        help_: what it says.
        labels: their names.
        registry: where it is shown.
    """

    def __init__(self, name: str, help_: str, labels: tuple[str, ...], registry: CollectorRegistry) -> None:
        self.gauge = Gauge(name, help_, labels, registry=registry)
        self._shown: set[tuple[str, ...]] = set()

    def show(self, values: Mapping[tuple[str, ...], float]) -> None:
        """Show these values, by their labels, and no others."""
        for labels in self._shown - values.keys():
            self.gauge.remove(*labels)
        self._shown = set()
        self.set(values)

    def set(self, values: Mapping[tuple[str, ...], float]) -> None:
        """Show these values as well; others stay as they are."""
        for labels, value in values.items():
            self.gauge.labels(*labels).set(value)
        self._shown |= values.keys()


def code(reason: str) -> str:
    """A reason as a label: one of :mod:`trimtab.api.reasons`, or :data:`OTHER`."""
    return reason if reason in _CODES else OTHER
