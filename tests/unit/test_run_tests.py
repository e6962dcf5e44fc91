"""The runner of ``make test`` and ``make test-live``, with other commands in place of its stages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools import run_tests

from tests.fixtures.golden import Golden

ROOT = Path(__file__).parents[2]
RUN = """
from tools import run_tests

python = lambda code: ("python", "-c", code)
run_tests._GRACE = 0.5
run_tests.BUILD = python({build!r})
run_tests.CHECK = python({check!r})
run_tests.CORE = python({core!r})
raise SystemExit(run_tests.main(["test"]))
"""
RESULT = {
    "passed": 3,
    "failed": 1,
    "errors": 0,
    "skipped": 2,
    "failures": ["tests/api/test_a.py::test_b"],
    "reruns": {"tests/api/test_a.py::test_c": "NotReady"},
    "suites": {},
}
WRITE_RESULT = f"""
import json, os, pathlib
pathlib.Path(os.environ["TRIMTAB_TEST_RESULTS"], "1.json").write_text({json.dumps(RESULT)!r})
"""


def run(*, build: str = "", check: str = "", core: str = "") -> subprocess.CompletedProcess[str]:
    program = RUN.format(build=build or "pass", check=check or "pass", core=core or "pass")
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )


def test_failed_stage_fails_the_run_and_stops_no_other() -> None:
    done = run(check="raise SystemExit(3)", core=WRITE_RESULT)
    assert done.returncode == 3, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "3 passed, 1 failed, 2 skipped"
    assert "RERUN tests/api/test_a.py::test_c: NotReady" in lines
    assert "FAILED tests/api/test_a.py::test_b" in lines
    [core] = [line.split() for line in lines if line.startswith("api and core of e2e  ")]
    assert core[-5:] == ["4", "1", "2", "1", "ok"]


def test_failed_build_of_the_control_plane_ends_the_run_with_its_output() -> None:
    done = run(build="print('no compiler'); raise SystemExit(2)", core="print('started')")
    assert done.returncode == 2
    assert "no compiler" in done.stdout
    assert "started" not in done.stdout.splitlines()


def test_processes_that_a_stage_left_behind_are_stopped_and_listed(tmp_path: Path, golden: Golden) -> None:
    pid = tmp_path / "pid"
    leave = (
        "import pathlib, subprocess\n"
        "process = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"pathlib.Path({str(pid)!r}).write_text(str(process.pid))"
    )
    done = run(core=leave)
    assert done.returncode == 0, done.stderr
    golden(next(line for line in done.stdout.splitlines() if line.endswith("sleep 600")))
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_unknown_tier_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tests.main(["quick"]) == 2
    assert "test|live" in capsys.readouterr().err


def test_unit_suites_are_summed_by_folder() -> None:
    figures = {"cases": 2.0, "seconds": 1.0, "failures": 0.0, "reruns": 0.0}
    files = ("tests/unit/kube/test_a.py", "tests/unit/kube/test_b.py", "tests/e2e/test_c.py")
    stage = run_tests.Stage("live", (), results=[{"suites": dict.fromkeys(files, figures)}])
    assert run_tests._suites([stage]) == [
        ("tests/e2e/test_c.py", "2", "1", "0", "0"),
        ("tests/unit/kube", "4", "2", "0", "0"),
    ]
