from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.fixtures.golden import Golden
from trimtab_local.processes import Process, alive, send, start, stop

SLEEP = "import time; time.sleep(60)"


def python(code: str, log: Path, **more) -> Process:
    return start([sys.executable, "-c", code], log=log, **more)


def wait_for(log: Path, text: str) -> None:
    deadline = time.monotonic() + 30
    while text not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.01)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_process_runs_until_it_is_stopped(log: Path) -> None:
    process = python(SLEEP, log)
    assert alive(process)
    stop([process], patience=30)
    assert not alive(process)


def test_a_process_that_ignores_the_request_is_killed(log: Path) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    process = python(code, log)
    wait_for(log, "deaf")
    stop([process], patience=0.2)
    assert not alive(process)


def test_process_with_a_reused_id_is_not_stopped(log: Path) -> None:
    process = python(SLEEP, log)
    earlier = Process(pid=process.pid, started="another boot/1")
    try:
        assert not alive(earlier)
        assert not send(earlier, signal.SIGKILL)
        stop([earlier], patience=0.1)
        assert alive(process)
    finally:
        stop([process], patience=30)


def test_unused_process_id_is_not_alive() -> None:
    ended = Process(pid=2**22 + 1, started="")  # beyond the greatest process id of Linux
    assert not alive(ended)
    assert not send(ended, signal.SIGTERM)


def test_a_process_that_ended_is_reaped_and_not_alive(log: Path) -> None:
    process = python("", log)
    deadline = time.monotonic() + 30
    while alive(process):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


@pytest.mark.skipif(sys.platform != "linux", reason="threads of Linux")
def test_process_is_alive_until_its_last_thread_ends(log: Path) -> None:
    code = (
        "import ctypes, platform, threading, time\n"
        "exit_ = {'x86_64': 60, 'aarch64': 93}[platform.machine()]\n"
        "threading.Thread(target=lambda: (print('runs', flush=True), time.sleep(60))).start()\n"
        "ctypes.CDLL(None).syscall(exit_, 0)\n"  # only of the first thread
    )
    process = python(code, log)
    wait_for(log, "runs")
    deadline = time.monotonic() + 30
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert alive(process)

    stop([process], patience=30)

    assert not alive(process)
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def test_process_has_few_variables_and_its_own_session(log: Path, monkeypatch, golden: Golden) -> None:
    monkeypatch.setenv("ETCD_NAME", "surprise")
    code = "import os; print(os.environ.get('ETCD_NAME'), os.environ.get('GIVEN'), os.getsid(0) == os.getpid(), 'end')"
    process = python(code, log, environment={"GIVEN": "yes"})
    wait_for(log, "end")
    golden(log.read_text())
    stop([process], patience=30)


def test_the_log_is_appended_to_and_private(log: Path) -> None:
    for word in ("first", "second"):
        process = python(f"print('{word}')", log)
        wait_for(log, word)
        stop([process], patience=30)
    assert log.read_text() == "first\nsecond\n"
    assert log.stat().st_mode & 0o777 == 0o600
