"""Errors of commands: one line on stderr and an exit status, without a traceback.

The exit status is 2 for invalid input (a file, an option, a name), as for click's usage errors. It is 1 for failures at
run time with valid input, for example if the API server does not respond.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

import click

from trimtab.kube.api import ApiError, Forbidden, Unauthorized, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.printable import printable

FAILED: Final = 1
"""The exit status after a failure at run time."""

BAD_INPUT: Final = 2
"""The exit status after invalid input."""


class CommandError(click.ClickException):
    """A failure at run time, with a one-line message for the user."""

    exit_code = FAILED

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message on stderr. If an object has several errors, print one line for each."""
        for line in self.message.splitlines():
            click.echo(f"trimtab: {printable(line)}", file=file, err=file is None)


class BadInput(CommandError):
    """Invalid input, with a one-line message that names it and the reason."""

    exit_code = BAD_INPUT


@contextmanager
def report_errors() -> Iterator[None]:
    """Convert expected failures of a command to :class:`CommandError`; other exceptions are bugs and propagate."""
    try:
        yield
    except InputError as error:
        raise BadInput("\n".join(lines(error))) from error
    except (ApiError, Unreachable) as error:
        raise CommandError(_line(error)) from error
    except BrokenPipeError:
        raise  # the reading program (head, a pager) closed the pipe; click exits silently
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        raise CommandError(f"{named}{error.strerror or error}") from error


def server_error(error: ApiError | Unreachable, *, source: str, action: str = "") -> CommandError:
    """Convert an error of the API server to an error of a command, with hints for the user.

    Args:
        error: the API server's error, or an exception that it did not respond.
        source: the origin of the connection settings, e.g. ``kubeconfig /home/me/.kube/config, context dev``.
        action: the requested action as verb and resource, e.g. ``list pods``.
    """
    if isinstance(error, Unreachable):
        message = f"the API server does not respond: {_line(error)}"
    elif isinstance(error, Unauthorized):
        message = f"authentication failed: {_line(error)}"
    elif isinstance(error, Forbidden):
        message = f"no permission to {action or 'do this'}: {_line(error)}"
    else:
        message = f"{action}: {_line(error)}" if action else _line(error)
    return CommandError(f"{message} ({source})" if source else message)


class InvalidObjectReporter:
    """Reports invalid objects on stderr and counts them, so that a command can continue without them."""

    def __init__(self) -> None:
        self.skipped = 0

    def __call__(self, error: InputError) -> None:
        """Report and count an invalid object."""
        self.skipped += 1
        for line in lines(error):
            click.echo(f"trimtab: skipped: {printable(line)}", err=True)


def lines(error: InputError) -> list[str]:
    """Return one line per error. An object that was validated against a schema may have several errors."""
    return [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]


def _line(error: Exception) -> str:
    """Return an error's message on one line."""
    return " ".join(str(error).split()) or type(error).__name__
