"""Reports differences in behaviour between converted documents and their originals, on stderr and in a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import click

from trimtab.kube.printable import printable

SEVERITIES: Final = ("high", "medium", "low")
UNRATED: Final = "medium"
"""The severity of warnings of converters that do not rate them."""


class ConversionReport:
    """Collects the differences and the skipped objects of one conversion.

    Attributes:
        differences: the differences, in the order in which they were found.
        skipped: the number of skipped objects of each kind.
    """

    def __init__(self) -> None:
        self.differences: list[dict[str, str]] = []
        self.skipped: Counter[str] = Counter()

    def document(self, converted: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the report as plain data: the most severe differences first.

        Args:
            converted: the objects that the conversion prints.
        """
        ordered = sorted(self.differences, key=lambda each: SEVERITIES.index(each["severity"]))
        counts = Counter(each["severity"] for each in ordered)
        return {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "ConversionReport",
            "converted": [f"{each['kind']}/{each['metadata']['name']}" for each in converted],
            "differences": ordered,
            "skipped": dict(sorted(self.skipped.items())),
            "summary": {severity: counts[severity] for severity in SEVERITIES},
        }


_REPORT: Final[ContextVar[ConversionReport | None]] = ContextVar("conversion report", default=None)


@contextmanager
def recording(report: ConversionReport) -> Iterator[None]:
    """Record the differences that are printed meanwhile, by whichever reader."""
    token = _REPORT.set(report)
    try:
        yield
    finally:
        _REPORT.reset(token)


def print_differences(differences: Iterable[object], place: str) -> None:
    """Print differences on stderr, each on one line with its severity, if the converter rates it.

    Args:
        differences: objects with ``field``, ``message`` and optionally ``severity``, or other objects as messages.
        place: the file and the position of the document in it.
    """
    report = _REPORT.get()
    for each in differences:
        rated = getattr(each, "severity", None)
        severity, shown = rated or UNRATED, f" ({rated})" if rated else ""
        click.echo(f"trimtab: warning{shown}: {printable(place)}: {printable(str(each))}", err=True)
        if report is not None:
            field, message = getattr(each, "field", ""), getattr(each, "message", str(each))
            report.differences.append({"severity": severity, "source": place, "field": field, "message": message})


def print_skipped(kinds: Iterable[str]) -> None:
    """Print the number of objects that were skipped, by kind, on stderr."""
    counts = Counter(kinds)
    report = _REPORT.get()
    if report is not None:
        report.skipped.update(counts)
    if counts:
        listed = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        click.echo(f"trimtab: skipped {counts.total()} other objects: {printable(listed)}", err=True)
