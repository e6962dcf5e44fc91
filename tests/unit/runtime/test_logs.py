"""JSON logs: one object a line, extras as fields."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from trimtab.runtime.logs import JsonFormatter


def line(message: str, *args: Any, extra: dict[str, Any] | None = None, exc_info: Any = None) -> dict[str, Any]:
    record = logging.getLogger("x").makeRecord(
        "trimtab.test", logging.WARNING, __file__, 1, message, args, exc_info, extra=extra
    )
    text = JsonFormatter().format(record)
    assert "\n" not in text
    decoded: dict[str, Any] = json.loads(text)
    return decoded


def test_a_record_is_one_object_with_its_extras() -> None:
    out = line("evicted %s", "shop/web", extra={"policy": "default", "target": "n2"})
    assert out["level"] == "warning"
    assert out["logger"] == "trimtab.test"
    assert (out["message"], out["policy"], out["target"]) == ("evicted shop/web", "default", "n2")


def test_what_json_cannot_hold_is_written_as_text() -> None:
    assert line("x", extra={"thing": object})["thing"] == "<class 'object'>"


def test_an_exception_is_in_the_same_line() -> None:
    try:
        [][0]
    except IndexError:
        out = line("failed", exc_info=sys.exc_info())
    assert "IndexError: list index out of range" in out["exception"]


def test_what_kopf_hangs_on_records_becomes_the_object() -> None:
    reference = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "DeschedulerPolicy", "name": "default", "uid": "u"}
    out = line("x", extra={"k8s_ref": reference, "settings": object()})
    assert out["object"] == {"kind": "DeschedulerPolicy", "name": "default"}
    assert "settings" not in out
