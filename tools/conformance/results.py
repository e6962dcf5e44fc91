"""What the specs' runs returned: read from Ginkgo's reports, stored, compared and printed as a table."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from tools.generate import table

State = Literal["pass", "skip", "fail"]

KUBERNETES: Final = "kubernetes"
TRIMTAB: Final = "trimtab"
SIDES: Final = (KUBERNETES, TRIMTAB)

GROUPS: Final = {
    "SchedulerPredicates": "kube-scheduler",
    "SchedulerPriorities": "kube-scheduler",
    "SchedulerPreemption": "kube-scheduler",
    "LimitRange": "kube-scheduler",
    "Multi-AZ Clusters": "kube-scheduler",
    "NoExecuteTaintManager": "kube-controller-manager",
}
"""The specs' outermost containers, by the beginning of their names, and which component of Kubernetes they test."""

_STATES: Final[Mapping[str, State]] = {"passed": "pass", "skipped": "skip", "pending": "skip"}
"""Ginkgo's other states (failed, panicked, timedout, interrupted, aborted) all mean that the spec failed."""
_TAG: Final = re.compile(r"\s*\[[^\]]*\]")


class Result(Struct, frozen=True, omit_defaults=True):
    """One spec's result.

    Attributes:
        state: the state of the spec.
        seconds: that it took.
        reason: why it was skipped or failed.
        conformance: whether every certified Kubernetes cluster must pass it.
    """

    state: State
    seconds: float
    reason: str = ""
    conformance: bool = False


Results = dict[str, dict[str, dict[str, Result]]]
"""By side, by group, by the spec's name."""


class _Failure(Struct, rename="pascal"):
    message: str = ""


class _SpecReport(Struct, rename="pascal"):
    leaf_node_type: str
    leaf_node_text: str
    state: str
    run_time: int = 0
    container_hierarchy_texts: list[str] | None = None
    failure: _Failure | None = None


class _SuiteReport(Struct, rename="pascal"):
    spec_reports: list[_SpecReport] | None = None


def read_report(content: bytes, group: str) -> dict[str, Result]:
    """Return the results of a group's specs by name, from Ginkgo's JSON report.

    Specs that the focus did not select are in the report as well, skipped without a message; they are left out.

    Raises:
        msgspec.DecodeError: the content is no such report.
    """
    found: dict[str, Result] = {}
    for suite in msgspec.json.decode(content, type=list[_SuiteReport]):
        for spec in suite.spec_reports or ():
            name = _name(spec, group)
            reason = " ".join(spec.failure.message.split()) if spec.failure is not None else ""
            state = _STATES.get(spec.state, "fail")
            if name is None or (state == "skip" and not reason):
                continue
            found[name] = Result(
                state=state,
                seconds=round(spec.run_time / 1e9, 1),
                reason="" if state == "pass" else reason or spec.state,
                conformance="[Conformance]" in spec.leaf_node_text,
            )
    return found


def _name(spec: _SpecReport, group: str) -> str | None:
    """The spec's name without its tags and its group, or ``None`` where it belongs to another group."""
    containers = [_TAG.sub("", text).strip() for text in spec.container_hierarchy_texts or ()]
    if spec.leaf_node_type != "It" or not containers or not containers[0].startswith(group):
        return None
    parts = (containers[0].removeprefix(group), *containers[1:], _TAG.sub("", spec.leaf_node_text))
    return ": ".join(part.strip() for part in parts if part.strip())


def read_results(path: Path) -> Results:
    """Return what :func:`write_results` stored; nothing where the file does not exist."""
    return msgspec.json.decode(path.read_bytes(), type=Results) if path.exists() else {}


def write_results(path: Path, results: Results) -> None:
    """Store the results as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results, order="sorted"), indent=1) + b"\n")


def merge_results(path: Path, side: str, group: str, found: Mapping[str, Result], *, whole: bool) -> None:
    """Add the results of a run to the stored ones. Several runs may do so at the same time.

    Args:
        path: the path of the stored results.
        side: the side of the run.
        group: the group of the specs.
        found: the results by the specs' names.
        whole: whether all specs of the group ran, so that results of other names are outdated.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        results = read_results(path)
        groups = results.setdefault(side, {})
        groups[group] = dict(found) if whole else {**groups.get(group, {}), **found}
        write_results(path, results)


def regressions(results: Results, groups: Iterable[str] = GROUPS) -> list[tuple[str, str]]:
    """Return group and name of the specs that pass with Kubernetes' components and do not with trimtab.

    A spec that did not run with trimtab is one of them.
    """
    return [
        (group, name)
        for group in groups
        for name, theirs in sorted(results.get(KUBERNETES, {}).get(group, {}).items())
        if theirs.state == "pass" and not _passes(results.get(TRIMTAB, {}).get(group, {}).get(name))
    ]


def _passes(result: Result | None) -> bool:
    return result is not None and result.state == "pass"


def summary(results: Results) -> str:
    """Return one line per side: how many specs passed, were skipped and failed."""
    lines = []
    for side in SIDES:
        states = [result.state for group in results.get(side, {}).values() for result in group.values()]
        counted = ", ".join(f"{states.count(state)} {word}" for state, word in _WORDS.items())
        lines.append(f"{side}: {len(states)} specs: {counted}")
    return "\n".join(lines)


_WORDS: Final[Mapping[State, str]] = {"pass": "passed", "skip": "skipped", "fail": "failed"}


def tables(results: Results) -> str:
    """Return a Markdown table per group, with the reasons of what did not pass in a column of its own."""
    parts = []
    for group, component in GROUPS.items():
        rows = _rows(results, group)
        if rows:
            head = ("Spec", component, "trimtab", "Reason")
            parts.append(f"## {group}\n\n{table(head, *rows)}")
    return "\n".join(parts)


def _rows(results: Results, group: str) -> list[tuple[str, ...]]:
    sides = [results.get(side, {}).get(group, {}) for side in SIDES]
    rows = []
    for name in sorted(set().union(*sides)):
        found = [side.get(name) for side in sides]
        reasons = dict.fromkeys(_escaped(result.reason) for result in found if result is not None and result.reason)
        cells = ["not run" if result is None else result.state for result in found]
        mark = " (conformance)" if any(result is not None and result.conformance for result in found) else ""
        rows.append((_escaped(name) + mark, *cells, "; ".join(reasons)))
    return rows


_REASON: Final = 160


def _escaped(text: str) -> str:
    """The text as one short cell: a failed spec's message may hold a whole object."""
    short = text if len(text) <= _REASON else text[: _REASON - 1].rstrip() + "…"
    return short.replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[")
