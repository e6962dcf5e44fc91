"""Generates parts of the reference: the commands' help, metrics and reasons."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import click
from msgspec import Struct
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from tools.generate import table
from trimtab.admission.server import AdmissionMetrics
from trimtab.api import reasons
from trimtab.autoscaling.imports.flags import FLAGS, REMOVED, Flag
from trimtab.autoscaling.report.metrics import AutoscalerMetrics, CompatibleMetrics
from trimtab.cli.main import cli
from trimtab.controller.history import HistoryMetrics
from trimtab.controller.metrics import WorkQueueMetrics
from trimtab.descheduling.report.metrics import DeschedulerMetrics
from trimtab.disruption.evictor.metrics import EvictorMetrics
from trimtab.pressure.report import PressureMetrics
from trimtab.runtime.metrics.page import DROPPED_SAMPLES
from trimtab.runtime.metrics.process import RuntimeMetrics
from trimtab.scheduling.report import SchedulerMetrics
from trimtab.tainting.report import TaintManagerMetrics

_WIDTH: Final = 100
_HEADING: Final = re.compile(r"^# ── (.+?) ─+$", re.MULTILINE)


class Metric(Struct, frozen=True):
    """A metric as shown on /metrics."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str


class Reason(Struct, frozen=True):
    """A reason code with the heading of its section."""

    code: str
    section: str
    meaning: str


def metrics() -> list[Metric]:
    """Return all metrics of trimtab in the order of their definition."""
    registry = CollectorRegistry()
    RuntimeMetrics(registry)
    WorkQueueMetrics(registry)
    EvictorMetrics(registry)
    HistoryMetrics(registry)
    DeschedulerMetrics(registry)
    AutoscalerMetrics(registry)
    CompatibleMetrics(registry)
    TaintManagerMetrics(registry)
    SchedulerMetrics(registry)
    AdmissionMetrics(registry)
    PressureMetrics(registry)
    found = []
    for collector in registry._collector_to_names:  # noqa: SLF001 - there is no public way to the label names
        if isinstance(collector, MetricWrapperBase):
            [family] = collector.describe()
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found.append(Metric(name, family.type, tuple(collector._labelnames), family.documentation))  # noqa: SLF001
    name, help_ = DROPPED_SAMPLES
    return [*found, Metric(name, "gauge", (), help_)]


def reason_codes() -> list[Reason]:
    """Return the codes of :mod:`trimtab.api.reasons` with their docstrings, in the module's order."""
    text = Path(reasons.__file__).read_text(encoding="utf-8")
    headings = [(text[: found.start()].count("\n") + 1, found[1]) for found in _HEADING.finditer(text)]
    found = []
    for statement, after in pairwise(ast.parse(text).body):
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            section = [heading for line, heading in headings if line < statement.lineno][-1]
            found.append(Reason(ast.literal_eval(statement.value), section, _docstring(after)))
    return found


def commands(
    command: click.Command = cli, path: str = "trimtab", parent: click.Context | None = None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield this command and its subcommands: the command line, the command and its context."""
    name = path.rpartition(" ")[2]
    context = click.Context(command, parent, name, terminal_width=_WIDTH, **command.context_settings)
    yield path, command, context
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if found is not None:
                yield from commands(found, f"{path} {below}", context)


def commands_part() -> str:
    """Return one section per command with its help."""
    return "\n".join(
        f"## {path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n" for path, command, context in commands()
    )


def metrics_part() -> str:
    """Return the table of metrics."""
    rows = [(f"`{m.name}`", m.type, ", ".join(f"`{label}`" for label in m.labels), m.help) for m in metrics()]
    return table(("Metric", "Type", "Labels", "Meaning"), *rows)


def reasons_part() -> str:
    """Return one section with a table per heading of the module."""
    sections: dict[str, list[tuple[str, ...]]] = {}
    for reason in reason_codes():
        sections.setdefault(reason.section, [("Code", "Meaning")]).append((f"`{reason.code}`", reason.meaning))
    return "\n".join(f"## {section}\n\n{table(*rows)}" for section, rows in sections.items())


def _docstring(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return re.sub(r"``(.+?)``", r"`\1`", " ".join(str(statement.value.value).split()))
    raise SyntaxError(f"{reasons.__file__}:{statement.lineno}: a reason has no docstring")


def autoscaler_flags_part() -> str:
    """Return the table of cluster-autoscaler's flags and of what becomes of them."""
    rows = [
        (f"`--{name}`", f"`{flag.default}`" if flag.default else "", _fate_of(flag), _fate(flag))
        for name, flag in sorted((FLAGS | REMOVED).items())
    ]
    return table(("Flag", "Default", "Fate", "Field, reason or effect"), *rows)


def _fate_of(flag: Flag) -> str:
    return f"{flag.fate} ({flag.severity})" if flag.fate == "lost" else flag.fate


def _fate(flag: Flag) -> str:
    is_field = flag.fate == "converted" and " " not in flag.note
    return f"`{flag.note}`" if is_field else flag.note
