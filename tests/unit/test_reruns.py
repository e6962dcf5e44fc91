"""The hooks of tests/conftest.py for repeated tests, in a pytest run of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools.run_tests import RESULTS

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
XDIST = ("--numprocesses=1",)
WITH_XDIST = pytest.param(XDIST, marks=pytest.mark.live)  # seconds each; `make check` has one such case

FLAKY = """
from pathlib import Path

import pytest

@pytest.mark.parametrize("number", range({number}))
def test_flaky(number):
    attempted = Path(__file__).with_name(f"attempted-{{number}}")
    repeated = attempted.exists()
    attempted.touch()
    print(f"pods of n{{number}}: 7")
    assert repeated, f"node n{{number}} is not ready"

@pytest.mark.parametrize("number", range({sound}))
def test_sound(number):
    pass
"""
"""Tests of which some fail at their first attempt."""


@pytest.fixture(autouse=True)
def no_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the runs of these tests out of the figures of the run that they are part of."""
    monkeypatch.delenv(RESULTS, raising=False)


def run_flaky(pytester: pytest.Pytester, number: int, *options: str, sound: int = 1) -> pytest.RunResult:
    """Run tests with the hooks. A worker of xdist imports them as well, so it needs the path."""
    pytester.makepyfile(FLAKY.format(number=number, sound=sound))
    path = f"{ROOT} {ROOT / 'operator'} {ROOT / 'local'}"
    pytester.makeini(f"[pytest]\npythonpath = {path}\nasyncio_default_fixture_loop_scope = function\n")
    return pytester.runpytest_inprocess("-p", "tests.conftest", "--reruns=2", *options)


@pytest.mark.parametrize("options", [(), WITH_XDIST], ids=["one process", "xdist"])
def test_summary_prints_why_a_repeated_test_failed(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    result = run_flaky(pytester, 1, *options)
    assert result.parseoutcomes() == {"passed": 2, "rerun": 1}
    result.stdout.fnmatch_lines(["*RERUN *test_flaky*0* (call)*", "*node n0 is not ready*", "pods of n0: 7"])


@pytest.mark.parametrize("options", [(), WITH_XDIST], ids=["one process", "xdist"])
def test_closing_lines_list_repeated_tests_with_their_reason(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    result = run_flaky(pytester, 1, *options)
    result.stdout.fnmatch_lines(["*repeated tests*", "RERUN *test_flaky*0*: AssertionError: node n0 is not ready*"])


@pytest.mark.parametrize(
    ("flaky", "sound", "options", "expected"),
    [
        (1, 1, (), pytest.ExitCode.OK),
        (2, 1, (), pytest.ExitCode.TESTS_FAILED),
        (2, 1, XDIST, pytest.ExitCode.TESTS_FAILED),
        (2, 198, (), pytest.ExitCode.OK),
        (2, 197, (), pytest.ExitCode.TESTS_FAILED),
    ],
    ids=["one", "two", "two with xdist", "one percent", "above one percent"],
)
def test_run_with_more_than_one_percent_of_repeated_tests_fails(
    pytester: pytest.Pytester, flaky: int, sound: int, options: tuple[str, ...], expected: pytest.ExitCode
) -> None:
    result = run_flaky(pytester, flaky, *options, sound=sound)
    assert result.parseoutcomes() == {"passed": flaky + sound, "rerun": flaky}
    assert result.ret == expected


def test_figures_of_a_run_are_written(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RESULTS, str(tmp_path))
    run_flaky(pytester, 1, sound=2)
    [path] = tmp_path.iterdir()
    figures = json.loads(path.read_text())
    assert {name: figures[name] for name in ("passed", "failed", "errors", "skipped")} == {
        "passed": 3,
        "failed": 0,
        "errors": 0,
        "skipped": 0,
    }
    assert list(figures["reruns"].values()) == ["AssertionError: node n0 is not ready"]
    [suite] = figures["suites"].values()
    assert {name: suite[name] for name in ("cases", "reruns")} == {"cases": 3, "reruns": 1}
