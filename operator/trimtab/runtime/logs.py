"""Log formats: one JSON object per line with the record's ``extra`` as fields, or plain text."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from trimtab.kube.printable import printable

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_TEXT_FIELDS: Final = ("policy", "strategy", "reason", "pod", "node", "target", "group", "run", "due", "result")
"""The extras that a line of text ends with, unless its message contains their value. JSON lines have all extras."""
_KOPF: Final = frozenset({"k8s_ref", "settings", "k8s_skip"})
"""Attributes that Kopf adds to its records for posting events."""
_HIDDEN: Final = _STANDARD | _KOPF


class JsonFormatter(logging.Formatter):
    """Formats time, level, logger, message and the record's extras.

    Values without a JSON form are converted to strings.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line of JSON."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        reference = getattr(record, "k8s_ref", None)
        if isinstance(reference, dict):
            line["object"] = {key: reference[key] for key in ("kind", "namespace", "name") if reference.get(key)}
        line |= {key: value for key, value in record.__dict__.items() if key not in _HIDDEN}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class TextFormatter(logging.Formatter):
    """Formats time, level, logger, message and important extras on one line, followed by the indented traceback.

    Extras are written as ``key=value``, as in logfmt, so that a line names the policy, the strategy and the reason of
    an action even if its message does not.

    Control characters are escaped, so that the content of an object can neither forge log lines nor control a terminal.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Format the line of a record."""
        line = super().formatMessage(record)
        return printable("".join((line, *_missing_fields(record))))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Format the traceback with indentation."""
        return "\n".join(f"    {printable(line)}" for line in super().formatException(ei).split("\n"))


def _missing_fields(record: logging.LogRecord) -> Iterator[str]:
    """Yield `` key=value`` for each important extra that the message does not contain."""
    words = set(re.split(r"[^\w./:-]+", record.message))
    words.update(word.strip(".:") for word in tuple(words))
    words.update(part for word in tuple(words) for part in word.split("/"))
    for field in _TEXT_FIELDS:
        value = getattr(record, field, None)
        if value not in (None, "") and str(value) not in words:
            yield f" {field}={_quoted(value)}"


def _quoted(value: object) -> str:
    """Return a value as logfmt writes it: quoted if it contains white space, quotes or ``=``."""
    text = str(value)
    return msgspec.json.encode(text).decode() if re.search(r'[\s"=]', text) else text


def configure_logging(*, form: str, level: str) -> None:
    """Write logs to stderr. Log records of libraries are written only at WARNING and above.

    Args:
        form: the format, ``json`` or ``text``.
        level: the minimum level: debug, info, warning or error.
    """
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("aiohttp.access", "asyncio", "kopf"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
