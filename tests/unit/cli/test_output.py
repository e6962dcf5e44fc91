"""Tables and documents."""

from __future__ import annotations

import click
import msgspec
import pytest

from tests.fixtures.golden import Golden
from trimtab.cli.errors import server_error
from trimtab.cli.output import echo, emit, table
from trimtab.kube.api import ApiError, Forbidden, Unauthorized, Unreachable


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    text = click.unstyle(table(["A", "LONGER"], [["wide cell", "x"], ["y", ""]], indent="  "))

    assert text.splitlines() == ["  A           LONGER", "  wide cell   x", "  y"]


def test_empty_table_is_empty() -> None:
    assert table([], []) == ""


OWNED = "x\x1b]0;OWNED\x07\x1b[2J\x1b[31m\x9b1m\u202e\rAll policies OK\nfake"
"""What a tenant may write into an annotation: a title, a cleared screen, colours, reversed text and a forged line."""


def test_control_characters_in_cells_are_escaped(golden: Golden) -> None:
    lines = table(["A", "B"], [[OWNED, "b"]]).splitlines()

    assert len(lines) == 2
    golden(lines[1])


def test_only_bold_headings_are_printed(capsys, monkeypatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    with click.Context(click.Command("x"), color=True):
        echo(f"{click.style('Plan', bold=True)}: {OWNED}")

    out = capsys.readouterr().out
    assert out.startswith("\x1b[1mPlan\x1b[0m: x\\x1b]0;")
    assert not set(out.removeprefix("\x1b[1mPlan\x1b[0m")) & set("\x1b\x07\x9b\r\u202e")


def test_json_escapes_control_characters(capfdbinary) -> None:
    emit({"a": OWNED}, "json")

    out = capfdbinary.readouterr().out.decode()
    assert msgspec.json.decode(out) == {"a": OWNED}
    assert not set(out) & set("\x1b\x07\x9b\r\u202e")


def test_yaml_escapes_control_characters(capfdbinary) -> None:
    emit({"a": OWNED}, "yaml")

    out = capfdbinary.readouterr().out.decode()
    assert msgspec.yaml.decode(out) == {"a": OWNED}
    assert not set(out) & set("\x1b\x07\x9b\r")


def test_json_keeps_the_order_of_keys_and_is_utf_8(capfdbinary) -> None:
    emit({"b": 1, "a": ["…"]}, "json")

    assert capfdbinary.readouterr().out == '{\n  "b": 1,\n  "a": [\n    "…"\n  ]\n}\n'.encode()


def test_yaml_keeps_the_order_of_keys(capfdbinary) -> None:
    emit({"b": 1, "a": "yes"}, "yaml")

    assert capfdbinary.readouterr().out == b"b: 1\na: 'yes'\n"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Unreachable("GET https://10.0.0.1/x: refused"), id="unreachable"),
        pytest.param(Forbidden("no"), id="forbidden names verb and resource"),
        pytest.param(Unauthorized("no"), id="unauthorized"),
        pytest.param(ApiError("two\nlines"), id="one line"),
    ],
)
def test_server_errors_name_source_and_action(error, golden: Golden) -> None:
    golden(server_error(error, source="kubeconfig k, context c", action="list pods").message)
