"""YAML whose keys must not be there twice."""

from __future__ import annotations

import pytest

from trimtab.kube.errors import InputError
from trimtab.kube.wire.documents import documents


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("kind: A\nmetadata: {name: x}\nkind: B\n", id="two files without a separator"),
        pytest.param("kind: A\nspec:\n  limits: {perNode: 1}\n  limits: {perNode: 2}\n", id="nested"),
    ],
)
def test_a_key_that_is_there_twice_is_refused_with_its_line(text) -> None:
    with pytest.raises(InputError, match=r"is not YAML: (kind|limits) is there twice .*line [34], column [13]"):
        list(documents(text.encode()))


DEEP = 30_000


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * DEEP + "]" * DEEP, id="lists in brackets"),
        pytest.param("[{a: " * DEEP, id="that never close"),
        pytest.param("- " * DEEP + "1", id="lists in a line"),
        pytest.param("".join(" " * depth + "a:\n" for depth in range(1500)), id="mappings by their indentation"),
    ],
)
def test_a_text_that_is_nested_too_deeply_is_refused_before_its_reader_crashes(text: str) -> None:
    with pytest.raises(InputError, match=r"^is nested too deeply to be read: allowed are 1000"):
        list(documents(text.encode()))


def test_brackets_in_strings_nest_nothing() -> None:
    (document,) = documents(b'kind: A\ntext: "' + b"[" * DEEP + b'"\n')

    assert dict(document.content)["text"] == "[" * DEEP


def test_aliases_of_aliases_are_refused_before_anybody_goes_through_them() -> None:
    bomb = "kind: A\na0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))

    with pytest.raises(InputError, match=r"stands for \d+ values by its aliases: allowed are 100\d+"):
        list(documents(bomb.encode()))


def test_merged_keys_may_be_overridden() -> None:
    text = b"base: &base {a: 1, b: 2}\nkind: A\nspec:\n  <<: *base\n  b: 3\n"

    (document,) = documents(text)

    assert document.content["spec"] == {"a": 1, "b": 3}
