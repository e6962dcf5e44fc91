"""The hooks of tests/conftest.py for repeated tests, in a pytest run of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import MAX_RERUNS

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
XDIST = ("--numprocesses=1",)

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
"""
"""Tests of which each fails at its first attempt."""


def run_flaky(pytester: pytest.Pytester, number: int, *options: str) -> pytest.RunResult:
    """Run tests with the hooks. A worker of xdist imports them as well, so it needs the path."""
    pytester.makepyfile(FLAKY.format(number=number))
    path = f"{ROOT} {ROOT / 'operator'} {ROOT / 'local'}"
    pytester.makeini(f"[pytest]\npythonpath = {path}\nasyncio_default_fixture_loop_scope = function\n")
    return pytester.runpytest_inprocess("-p", "tests.conftest", "--reruns=1", *options)


@pytest.mark.parametrize("options", [(), XDIST], ids=["one process", "xdist"])
def test_summary_prints_why_a_repeated_test_failed(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    result = run_flaky(pytester, 1, *options)
    assert result.parseoutcomes() == {"passed": 1, "rerun": 1}
    result.stdout.fnmatch_lines(["*RERUN *test_flaky*0* (call)*", "*node n0 is not ready*", "pods of n0: 7"])


@pytest.mark.parametrize(
    ("number", "options", "expected"),
    [
        (MAX_RERUNS, (), pytest.ExitCode.OK),
        (MAX_RERUNS + 1, (), pytest.ExitCode.TESTS_FAILED),
        (MAX_RERUNS + 1, XDIST, pytest.ExitCode.TESTS_FAILED),
    ],
    ids=["at the bound", "above the bound", "above the bound with xdist"],
)
def test_run_with_too_many_repeated_tests_fails(
    pytester: pytest.Pytester, number: int, options: tuple[str, ...], expected: pytest.ExitCode
) -> None:
    result = run_flaky(pytester, number, *options)
    assert result.parseoutcomes() == {"passed": number, "rerun": number}
    assert result.ret == expected
