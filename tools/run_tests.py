"""Runs the tests of a tier and prints what took how long: ``python -m tools.run_tests test``, or ``make test``.

The tier ``test`` decides whether a change may land; ``live`` runs what takes too long for that. Both build the control
plane while stages run that do not need it. Every stage runs, also after one that failed. No process that a stage
started is left behind: this process adopts orphans, and stops those that remain.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
BIN: Final = Path(sys.executable).parent
RESULTS: Final = "TRIMTAB_TEST_RESULTS"
"""Environment variable: the directory to which a run of pytest writes its figures."""
SEED: Final = "TRIMTAB_HYPOTHESIS_SEED"
"""Environment variable: the seed of new examples. Profiles that always draw the same examples ignore it."""

CHECK: Final = ("tox", "run-parallel", "--parallel-no-spinner", "-e", "lint,types,unit")
CORE: Final = ("tox", "run", "-e", "core")
LIVE: Final = ("tox", "run", "-e", "live")
DIFFERENTIALS: Final = (
    ("differential", ("python", "-m", "tests.differential", "--pods", "1000")),
    ("differential-drains", ("python", "-m", "tests.differential.drains", "--clusters", "200")),
    ("differential-descheduler", ("python", "-m", "tests.descheduler_differential", "--clusters", "200")),
    ("differential-kubelet", ("python", "-m", "tests.kubelet_differential", "--timelines", "1000")),
)
BUILD: Final = ("trimtab", "local", "build", "--helm")
WAITS_FOR_BUILD: Final = "waiting for the control plane"

_PR_SET_CHILD_SUBREAPER: Final = 36
_GRACE: Final = 10.0


@dataclass
class Stage:
    """A command of a run, and what came of it."""

    name: str
    command: Sequence[str]
    seconds: float = 0.0
    status: int = 0
    results: list[dict[str, Any]] = field(default_factory=list)

    def total(self, column: str) -> int:
        """Return the sum of a figure over the pytest runs of the stage."""
        return sum(each[column] for each in self.results)


def main(arguments: Sequence[str]) -> int:
    """Run a tier; returns the exit status, 0 if all stages passed."""
    if arguments not in (["test"], ["live"]):
        print("usage: python -m tools.run_tests test|live", file=sys.stderr)
        return 2
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    tier = arguments[0]
    began = time.monotonic()
    stages: list[Stage] = []
    try:
        _run(tier, stages)
    finally:
        left = _stop_remaining()
        _print_table(tier, stages, time.monotonic() - began, left)
    return next((stage.status for stage in stages if stage.status), 0)


def _run(tier: str, stages: list[Stage]) -> None:
    environment = dict(os.environ)
    if tier == "live":
        seed = environment.setdefault(SEED, str(random.SystemRandom().randrange(10**9)))
        environment.setdefault("TRIMTAB_HYPOTHESIS_PROFILE", "thorough")
        print(f"hypothesis draws new examples; repeat them with {SEED}={seed}", flush=True)
    with tempfile.TemporaryFile() as log:
        build = subprocess.Popen(_resolved(BUILD), stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=ROOT)
        stages.append(_execute(Stage("lint, types, unit", CHECK), environment))
        waited = Stage(WAITS_FOR_BUILD, BUILD)
        stages.append(waited)
        start = time.monotonic()
        waited.status = build.wait()
        waited.seconds = time.monotonic() - start
        if waited.status:
            log.seek(0)
            print(log.read().decode(errors="replace")[-5000:], flush=True)
            return
    if tier == "test":
        stages.append(_execute(Stage("api and core of e2e", CORE), environment))
        return
    stages.append(_execute(Stage("live", LIVE), environment))
    stages.extend(_execute(Stage(name, command), environment) for name, command in DIFFERENTIALS)


def _resolved(command: Sequence[str]) -> list[str]:
    return [str(BIN / command[0]), *command[1:]]


def _execute(stage: Stage, environment: dict[str, str]) -> Stage:
    print(f"\n{stage.name}: {' '.join(stage.command)}", flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen(
            _resolved(stage.command),
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env=environment | {RESULTS: directory},
            start_new_session=True,
        )
        try:
            stage.status = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            raise
        stage.results = [json.loads(path.read_text("utf-8")) for path in sorted(Path(directory).glob("*.json"))]
    stage.seconds = time.monotonic() - start
    return stage


def _children() -> dict[int, str]:
    """Return the processes whose parent is this one, among them all orphans of the stages, with their commands."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text("utf-8", errors="replace").rpartition(")")[2].split()
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found[int(path.name)] = command or "ended"
    return found


def _stop_remaining() -> list[str]:
    """Stop processes that a stage left behind, and return their commands."""
    # Guards of control planes end by themselves within seconds of the tests that started them.
    deadline = time.monotonic() + _GRACE
    left: dict[int, str] = {}
    while (left := _reap(_children())) and time.monotonic() < deadline:
        time.sleep(0.2)
    commands = list(left.values())
    for how in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _GRACE
        for pid in left:
            os.kill(pid, how)
        while (left := _reap(_children())) and time.monotonic() < deadline:
            time.sleep(0.2)
    return commands


def _reap(children: dict[int, str]) -> dict[int, str]:
    running = {}
    for pid, command in children.items():
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue
        if not ended:
            running[pid] = command
    return running


def _print_table(tier: str, stages: Sequence[Stage], seconds: float, left: Sequence[str]) -> None:
    rows = [("stage", "minutes", "cases", "failed", "skipped", "reruns", "")]
    for stage in stages:
        cases = stage.total("passed") + stage.total("failed") + stage.total("errors")
        failed = stage.total("failed") + stage.total("errors")
        reruns = sum(len(each["reruns"]) for each in stage.results)
        figures = (cases, failed, stage.total("skipped"), reruns) if stage.results else ("", "", "", "")
        verdict = "ok" if stage.status == 0 else f"exit status {stage.status}"
        rows.append((stage.name, f"{stage.seconds / 60:.1f}", *map(str, figures), verdict))
    rows.append(("total", f"{seconds / 60:.1f}", "", "", "", "", ""))
    print()
    if tier == "live":
        _print_rows([("suite", "cases", "seconds", "failures", "reruns"), *_suites(stages)])
        print()
    for kind, by_name in _by_name(stages).items():
        for name, reason in sorted(by_name.items()):
            print(f"{kind} {name}{': ' if reason else ''}{reason}")
    for command in left:
        print(f"stopped a process that was left behind: {command[:200]}")
    results = [each for stage in stages for each in stage.results]
    passed, failed, errors, skipped = (sum(r[c] for r in results) for c in ("passed", "failed", "errors", "skipped"))
    print(f"make {'test' if tier == 'test' else 'test-live'} at {_commit()}")
    _print_rows(rows)
    print(f"{passed} passed, {failed + errors} failed, {skipped} skipped", flush=True)


def _by_name(stages: Sequence[Stage]) -> dict[str, dict[str, str]]:
    results = [each for stage in stages for each in stage.results]
    return {
        "RERUN": {name: reason for each in results for name, reason in each["reruns"].items()},
        "FAILED": {name: "" for each in results for name in each["failures"]},
    }


def _suites(stages: Sequence[Stage]) -> list[tuple[str, ...]]:
    columns = ("cases", "seconds", "failures", "reruns")
    merged: dict[str, dict[str, float]] = {}
    for each in (each for stage in stages for each in stage.results):
        for name, figures in each["suites"].items():
            # Unit tests by folder: there are hundreds of files.
            suite = str(Path(name).parent) if name.startswith("tests/unit") else name
            total = merged.setdefault(suite, dict.fromkeys(columns, 0.0))
            for column in columns:
                total[column] += figures.get(column, 0)
    return [(name, *(f"{figures[column]:.0f}" for column in columns)) for name, figures in sorted(merged.items())]


def _print_rows(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print("  ".join(cells).rstrip(), flush=True)


def _commit() -> str:
    done = subprocess.run(["git", "log", "-1", "--format=%h %s"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "an unknown commit"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
