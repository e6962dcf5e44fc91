"""`make demo`, as a new contributor runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.waiting import patiently

pytestmark = pytest.mark.core


def test_demo_ends_successfully() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=patiently(1200),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Violations found 4, repaired 4; protected pods touched: none" in done.stdout
