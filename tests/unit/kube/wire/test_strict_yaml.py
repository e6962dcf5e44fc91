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


def test_merged_keys_may_be_overridden() -> None:
    text = b"base: &base {a: 1, b: 2}\nkind: A\nspec:\n  <<: *base\n  b: 3\n"

    (document,) = documents(text)

    assert document.content["spec"] == {"a": 1, "b": 3}
