"""JSON logs: one object a line, extras as fields."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from trimtab.runtime.logs import JsonFormatter, TextFormatter


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


def test_values_without_json_form_are_written_as_strings() -> None:
    assert line("x", extra={"thing": object})["thing"] == "<class 'object'>"


def test_an_exception_is_in_the_same_line() -> None:
    try:
        {}["missing"]
    except KeyError:
        out = line("failed", exc_info=sys.exc_info())
    assert "KeyError: 'missing'" in out["exception"]


def test_kopf_object_reference_becomes_the_object_field() -> None:
    reference = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "DeschedulerPolicy", "name": "default", "uid": "u"}
    out = line("x", extra={"k8s_ref": reference, "settings": object()})
    assert out["object"] == {"kind": "DeschedulerPolicy", "name": "default"}
    assert "settings" not in out


def test_text_of_a_tenant_forges_no_line_and_no_sequence() -> None:
    forged = "x\n2026-01-01 00:00:00,000 INFO    trimtab: all is well\x1b[2J\x9b1m"
    try:
        int(forged)
    except ValueError:
        record = logging.getLogger("x").makeRecord(
            "trimtab.test", logging.WARNING, __file__, 1, "pod %s", (forged,), sys.exc_info()
        )
    first, *rest = TextFormatter().format(record).split("\n")
    assert r"pod x\n2026-01-01" in first
    assert all(each.startswith("    ") for each in rest)
    assert not any(
        ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for each in (first, *rest) for character in each
    )


def text(message: str, *args: Any, **extra: Any) -> str:
    record = logging.getLogger("x").makeRecord(
        "trimtab.test", logging.INFO, __file__, 1, message, args, None, extra=extra
    )
    return TextFormatter().format(record).partition(": ")[2]


def test_text_line_ends_with_the_fields_that_its_message_lacks() -> None:
    fields = {"policy": "default", "strategy": "RemoveDuplicates", "reason": "DuplicateOnNode", "target": "n4"}
    message = "Evicted pod %s from node %s (DuplicateOnNode: 2 pods on n1)"
    out = text(message, "shop/web-1", "n1", pod="web-1", node="n1", uid="u", **fields)
    assert out == f"{message % ('shop/web-1', 'n1')} policy=default strategy=RemoveDuplicates target=n4"


def test_field_whose_value_is_part_of_another_word_is_written() -> None:
    assert text("Evicted pod shop/web-10", pod="web-1") == "Evicted pod shop/web-10 pod=web-1"


def test_field_with_blanks_is_quoted_and_empty_fields_are_omitted() -> None:
    assert text("x", reason='a "b"', node="", pod=None) == r'x reason="a \"b\""'
