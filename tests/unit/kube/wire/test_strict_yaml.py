"""Duplicate keys in YAML are errors."""

from __future__ import annotations

import pytest

from tests.fixtures.golden import Golden
from trimtab.kube.errors import InputError
from trimtab.kube.wire.files.documents import documents


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("kind: A\nmetadata: {name: x}\nkind: B\n", id="two files without a separator"),
        pytest.param("kind: A\nspec:\n  limits: {perNode: 1}\n  limits: {perNode: 2}\n", id="nested"),
    ],
)
def test_a_duplicate_key_is_refused_with_its_line(text, golden: Golden) -> None:
    with pytest.raises(InputError) as raised:
        list(documents(text.encode()))
    golden(str(raised.value))


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
def test_a_text_that_is_nested_too_deeply_is_refused_before_its_reader_crashes(text: str, golden: Golden) -> None:
    with pytest.raises(InputError) as raised:
        list(documents(text.encode()))
    golden(str(raised.value))


def test_brackets_in_strings_nest_nothing() -> None:
    (document,) = documents(b'kind: A\ntext: "' + b"[" * DEEP + b'"\n')

    assert dict(document.content)["text"] == "[" * DEEP


def test_aliases_of_aliases_are_refused(golden: Golden) -> None:
    bomb = "kind: A\na0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))

    with pytest.raises(InputError) as raised:
        list(documents(bomb.encode()))
    golden(str(raised.value))


def test_merged_keys_may_be_overridden() -> None:
    text = b"base: &base {a: 1, b: 2}\nkind: A\nspec:\n  <<: *base\n  b: 3\n"

    (document,) = documents(text)

    assert document.content["spec"] == {"a": 1, "b": 3}


def test_merges_of_merges_are_refused_before_they_are_built(golden: Golden) -> None:
    merged = "".join(
        f"a{level}: &a{level} {{k{level}: 1, <<: [{', '.join([f'*a{level - 1}'] * 30)}]}}\n" for level in range(1, 9)
    )

    with pytest.raises(InputError) as raised:
        list(documents(f"kind: A\na0: &a0 {{k: 1}}\n{merged}".encode()))
    golden(str(raised.value))


def test_many_small_merges_are_read() -> None:
    parts = "".join(f"- {{<<: *base, name: n{number}}}\n" for number in range(5000))

    (document,) = documents(f"base: &base {{a: 1, b: 2}}\nkind: A\nitems:\n{parts}".encode())

    assert document.content["items"][-1] == {"a": 1, "b": 2, "name": "n4999"}
