"""Logs: one JSON object a line, with what a record's ``extra`` holds as fields of its own."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_KOPF: Final = frozenset({"k8s_ref", "settings", "k8s_skip"})
"""What Kopf hangs on its records for its own event posting."""


class JsonFormatter(logging.Formatter):
    """time, level, logger, message, then the record's extras; values that JSON cannot hold are written as text."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        reference = getattr(record, "k8s_ref", None)
        if isinstance(reference, dict):
            line["object"] = {key: reference[key] for key in ("kind", "namespace", "name") if reference.get(key)}
        hidden = _STANDARD | _KOPF
        line |= {key: value for key, value in record.__dict__.items() if key not in hidden}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def set_up(*, form: str, level: str) -> None:
    """Send all logs to stderr, as ``json`` or as ``text``; libraries say what is worth a warning only."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("aiohttp.access", "asyncio", "kopf"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
