"""Reports the progress of long steps: as a bar on a terminal, as lines in a log, and not at all in tests."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final, TextIO

from msgspec import Struct

_EVERY: Final = 15.0
"""Minimum seconds between two lines about the same step, so that the log stays short."""


class Task(Struct, frozen=True):
    """A long step.

    Attributes:
        advance: a function that is called with the additional amount done.
        expect: a function that is called with the new total if it changes.
        tick: a function that is called with a short description while progress cannot be counted.
    """

    advance: Callable[[int], None] = lambda _count: None
    expect: Callable[[int], None] = lambda _total: None
    tick: Callable[[str], None] = lambda _detail: None


class Progress:
    """Receives the progress of steps and reports nothing. This is the default."""

    def say(self, line: str) -> None:
        """Report one line."""

    @contextlib.contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        """Report a long step during the block.

        Args:
            title: the title of the step.
            total: the total that :attr:`Task.advance` will count; ``None`` if it is unknown.
        """
        del title, total
        yield Task()


class PlainProgress(Progress):
    """Reports progress as lines, for logs and pipes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def say(self, line: str) -> None:
        """See :class:`Progress`."""
        print(line, file=self._out, flush=True)

    @contextlib.contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        """Print a line every quarter of a minute and one at the end."""
        began = reported = time.monotonic()
        done = 0

        def line(detail: str) -> None:
            amount = f"{done:,} of {total:,}, " if total else ""
            self.say(f"{title}: {amount}{time.monotonic() - began:.0f} s{detail}")

        def tick(detail: str) -> None:
            nonlocal reported
            if time.monotonic() - reported >= _EVERY:
                reported = time.monotonic()
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
    """Reports progress with bars and spinners on a terminal."""

    def say(self, line: str) -> None:
        """See :class:`Progress`."""
        print(line, file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        """Show a bar with the elapsed time. The full bar stays visible when the step has ended."""
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
    """Return a reporter with bars if standard error is a terminal and rich is installed, else one with lines."""
    if sys.stderr.isatty():
        with contextlib.suppress(ImportError):
            import rich  # noqa: F401

            return RichProgress()
    return PlainProgress(sys.stderr)
