from __future__ import annotations

import io
import re

import pytest

from trimtab_local import progress


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def test_a_short_step_is_one_plain_line(out: io.StringIO) -> None:
    with progress.PlainProgress(out).task("pods", total=2000) as task:
        task.advance(1500)
        task.expect(1500)
    assert re.fullmatch(r"pods: 1,500 of 1,500, \d+ s\n", out.getvalue())


def test_a_long_step_shows_life(out: io.StringIO, monkeypatch) -> None:
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    with progress.PlainProgress(out).task("building") as task:
        task.tick("go: downloading x")
    assert re.fullmatch(r"building: \d+ s \(go: downloading x\)\nbuilding: \d+ s\n", out.getvalue())


def test_failed_step_is_not_reported_as_done(out: io.StringIO) -> None:
    with pytest.raises(ZeroDivisionError), progress.PlainProgress(out).task("building"):
        raise ZeroDivisionError
    assert out.getvalue() == ""


def test_bars_take_the_same_calls(capsys) -> None:
    recorded = progress.RichProgress()
    recorded.say("hello [world]")
    with recorded.task("pods [of] x", total=2) as task:
        task.advance(1)
        task.tick("detail [x]")
        task.expect(3)
    with recorded.task("building") as task:
        task.tick("")
    assert "hello [world]" in capsys.readouterr().err


def test_the_silent_one_is_silent(capsys) -> None:
    recorded = progress.Progress()
    recorded.say("x")
    with recorded.task("x", total=1) as task:
        task.advance(1)
        task.expect(2)
        task.tick("x")
    assert capsys.readouterr() == ("", "")


def test_a_pipe_gets_lines() -> None:
    assert isinstance(progress.for_terminal(), progress.PlainProgress)
