"""Tables and documents."""

from __future__ import annotations

import click
import pytest

from trimtab.cli.errors import at_server
from trimtab.cli.output import emit, table
from trimtab.kube.api import ApiError, Forbidden, Unauthorized, Unreachable


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    text = click.unstyle(table(["A", "LONGER"], [["wide cell", "x"], ["y", ""]], indent="  "))

    assert text.splitlines() == ["  A           LONGER", "  wide cell   x", "  y"]


def test_a_table_of_nothing_is_nothing() -> None:
    assert table([], []) == ""


def test_json_keeps_the_order_of_keys_and_is_utf_8(capfdbinary) -> None:
    emit({"b": 1, "a": ["…"]}, "json")

    assert capfdbinary.readouterr().out == '{\n  "b": 1,\n  "a": [\n    "…"\n  ]\n}\n'.encode()


def test_yaml_keeps_the_order_of_keys(capfdbinary) -> None:
    emit({"b": 1, "a": "yes"}, "yaml")

    assert capfdbinary.readouterr().out == b"b: 1\na: 'yes'\n"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        pytest.param(
            Unreachable("GET https://10.0.0.1/x: refused"),
            "the API server does not answer: GET https://10.0.0.1/x: refused (kubeconfig k, context c)",
            id="unreachable",
        ),
        pytest.param(
            Forbidden("no"), "may not list pods: no (kubeconfig k, context c)", id="forbidden names verb and resource"
        ),
        pytest.param(
            Unauthorized("no"), "the API server refuses the login: no (kubeconfig k, context c)", id="unauthorized"
        ),
        pytest.param(ApiError("two\nlines"), "list pods: two lines (kubeconfig k, context c)", id="one line"),
    ],
)
def test_failures_of_the_server_name_where_and_what(error, told) -> None:
    assert at_server(error, source="kubeconfig k, context c", action="list pods").message == told
