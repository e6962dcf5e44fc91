"""How a command ends that could not do its work: one line on stderr and an exit status, never a traceback.

2 is for bad input (a file, a flag, a name), 1 for what failed at run time though the input was good (a server that
does not answer, a right that is missing). Click ends its own usage errors with 2 as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

import click

from trimtab.kube.api import ApiError, Forbidden, Unauthorized, Unreachable
from trimtab.kube.errors import InputError

FAILED: Final = 1
"""Exit status of a failure at run time."""

BAD_INPUT: Final = 2
"""Exit status of bad input."""


class Reported(click.ClickException):
    """A failure at run time, with the one line that the user gets to read."""

    exit_code = FAILED

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line on stderr; an object with several faults has a line for each."""
        for line in self.message.splitlines():
            click.echo(f"trimtab: {line}", file=file, err=file is None)


class BadInput(Reported):
    """Input that cannot be used, with the one line that says which and why."""

    exit_code = BAD_INPUT


@contextmanager
def reported() -> Iterator[None]:
    """Turn what may go wrong in a command into :class:`Reported`; what is left is a defect and keeps its traceback."""
    try:
        yield
    except InputError as error:
        raise BadInput("\n".join(lines(error))) from error
    except (ApiError, Unreachable) as error:
        raise Reported(_line(error)) from error
    except BrokenPipeError:
        raise  # the reader (head, a pager) has what it wants; click ends quietly
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        raise Reported(f"{named}{error.strerror or error}") from error


def at_server(error: ApiError | Unreachable, *, source: str, action: str = "") -> Reported:
    """A failure of the API server, with the words that help to mend it.

    Args:
        error: what the server said, or that it said nothing.
        source: where the connection's settings come from, e.g. ``kubeconfig /home/me/.kube/config, context dev``.
        action: what was asked, as verb and resource: ``list pods``.
    """
    if isinstance(error, Unreachable):
        told = f"the API server does not answer: {_line(error)}"
    elif isinstance(error, Unauthorized):
        told = f"the API server refuses the login: {_line(error)}"
    elif isinstance(error, Forbidden):
        told = f"may not {action or 'do this'}: {_line(error)}"
    else:
        told = f"{action}: {_line(error)}" if action else _line(error)
    return Reported(f"{told} ({source})" if source else told)


class Skipping:
    """Reports each object that cannot be used on stderr, and lets the command go on without it."""

    def __init__(self) -> None:
        self.skipped = 0

    def __call__(self, error: InputError) -> None:
        """Report and count."""
        self.skipped += 1
        for line in lines(error):
            click.echo(f"trimtab: skipped: {line}", err=True)


def lines(error: InputError) -> list[str]:
    """What is wrong, a line a fault: an object that was checked against a schema may have several."""
    return [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]


def _line(error: Exception) -> str:
    """The message on one line, whatever the server put into it."""
    return " ".join(str(error).split()) or type(error).__name__
