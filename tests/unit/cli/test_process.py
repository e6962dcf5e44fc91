"""What only a process of its own shows: exit codes, streams, and what gets imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CLUSTER = str(ROOT / "examples" / "cluster")
POLICY = str(ROOT / "examples" / "policies" / "openshift-3.11.yaml")


def trimtab(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trimtab", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "operator"), **environment},
    )


def imported(*arguments: str) -> set[str]:
    """The top-level packages that a command imports."""
    script = (
        "import sys\n"
        "from trimtab.cli.main import cli\n"
        f"cli({list(arguments)!r}, prog_name='trimtab', standalone_mode=False)\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "operator")},
    )
    return set(done.stderr.split())


HEAVY = {"kopf", "aiohttp", "kubernetes", "cryptography", "rich"}


def test_planning_on_files_imports_no_network_library() -> None:
    assert not imported("plan", "--cluster", CLUSTER, "--policy", POLICY) & HEAVY


def test_explaining_on_files_imports_no_network_library() -> None:
    assert not imported("explain", "pod", "shop/search-0", "--cluster", CLUSTER) & HEAVY


@pytest.mark.parametrize("command", ["", "plan", "explain", "snapshot"])
def test_help_imports_nothing_heavy(command) -> None:
    assert not imported(*([command] if command else []), "--help") & {*HEAVY, "numpy", "google"}


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        pytest.param(["plan", "--cluster", CLUSTER, "--policy", POLICY], 0, "", id="done"),
        pytest.param(
            ["plan", "--cluster", "/nowhere", "--policy", POLICY], 2, "trimtab: /nowhere: cannot be read", id="file"
        ),
        pytest.param(["plan", "--cluster", CLUSTER], 2, "contains no policy", id="no policy"),
        pytest.param(["explain", "pod", "shop/x", "--cluster", CLUSTER], 2, "Pod/shop/x: pod not found", id="name"),
        pytest.param(["snapshot"], 2, "no cluster to connect to", id="no kubeconfig"),
    ],
)
def test_exit_codes_distinguish_invalid_input_from_success(arguments, status, expected, tmp_path) -> None:
    done = trimtab(*arguments, HOME=str(tmp_path), KUBECONFIG="", KUBERNETES_SERVICE_HOST="")

    assert done.returncode == status
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert bool(done.stdout) == (status == 0)


def test_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m trimtab plan --cluster {CLUSTER} --policy {POLICY} -o json | head -n 1"

    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "operator")},
    )

    assert done.stdout == "{\n"
    assert done.stderr == ""


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_ascii_locale_works(form) -> None:
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}

    assert trimtab("plan", "--cluster", CLUSTER, "--policy", POLICY, "-o", form, **plain).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(
            ["explain", "node"],
            "trimtab: Missing argument 'NAME' (see 'trimtab explain node --help')",
            id="missing argument",
        ),
        pytest.param(["--wrong"], "trimtab: No such option", id="unknown option"),
        pytest.param(["paln"], "trimtab: No such command 'paln'", id="unknown command"),
        pytest.param(
            ["plan", "--policy", POLICY, "--now", "today"],
            "trimtab: Invalid value for '--now': 'today'",
            id="bad value",
        ),
        pytest.param(["explain", "service", "web"], "trimtab: No such command 'service'", id="unknown resource"),
    ],
)
def test_usage_error_is_one_line(arguments, said) -> None:
    done = trimtab(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith(said)
