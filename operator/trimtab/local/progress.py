"""Telling a person how far a long step is: a moving bar on a terminal, plain lines in a log, nothing in tests."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final, TextIO

from msgspec import Struct

_EVERY: Final = 15.0
"""Seconds between two plain lines about the same step: a log should show life, not fill."""


class Task(Struct, frozen=True):
    """One step that takes long.

    Attributes:
        advance: call it with how much more is done.
        expect: call it with the new total, where that changes.
        tick: call it now and then while nothing can be counted, with a few words on what is happening.
    """

    advance: Callable[[int], None] = lambda _count: None
    expect: Callable[[int], None] = lambda _total: None
    tick: Callable[[str], None] = lambda _detail: None


class Progress:
    """Where steps are told. This one tells nobody; it is the default everywhere."""

    def say(self, line: str) -> None:
        """Something happened that is worth a line."""

    @contextlib.contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        """A step that takes long.

        Args:
            title: what is done.
            total: how much :attr:`Task.advance` will count, or ``None`` where nobody knows.
        """
        del title, total
        yield Task()


class PlainProgress(Progress):
    """Lines, for logs and pipes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def say(self, line: str) -> None:
        """Print the line."""
        print(line, file=self._out, flush=True)

    @contextlib.contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        """Print a line at the end, and one every quarter of a minute before."""
        began = told = time.monotonic()
        done = 0

        def line(detail: str) -> None:
            amount = f"{done:,} of {total:,}, " if total else ""
            self.say(f"{title}: {amount}{time.monotonic() - began:.0f} s{detail}")

        def tick(detail: str) -> None:
            nonlocal told
            if time.monotonic() - told >= _EVERY:
                told = time.monotonic()
                line(f" ({detail})" if detail else "")

        def advance(count: int) -> None:
            nonlocal done
            done += count
            tick("")

        def expect(count: int) -> None:
            nonlocal total
            total = count

        yield Task(advance=advance, expect=expect, tick=tick)
        line("")


class RichProgress(Progress):
    """Bars and spinners, on a terminal."""

    def say(self, line: str) -> None:
        """Print the line."""
        print(line, file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        """Show a bar with the time that passed; it stays, full, when the step is done."""
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        counted = (BarColumn(), MofNCompleteColumn()) if total else ()
        console = Console(stderr=True)
        with Bar(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}"),
            *counted,
            TimeElapsedColumn(),
            console=console,
        ) as bar:
            row = bar.add_task(escape(title), total=total)

            def tick(detail: str) -> None:
                bar.update(row, description=f"{escape(title)} [dim]{escape(detail[:60])}[/dim]")

            def expect(count: int) -> None:
                bar.update(row, total=count)

            yield Task(advance=lambda count: bar.advance(row, count), expect=expect, tick=tick)
            whole = bar.tasks[row].total or 1
            bar.update(row, description=escape(title), total=whole, completed=whole)


def for_terminal() -> Progress:
    """Bars where standard error is a terminal and rich is installed, else lines."""
    if sys.stderr.isatty():
        with contextlib.suppress(ImportError):
            import rich  # noqa: F401

            return RichProgress()
    return PlainProgress(sys.stderr)
