from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.golden import FOLDER, TESTS, Golden, read


def test_update_writes_entries_that_compare_equal(tmp_path: Path) -> None:
    texts = {"": "one line", "table": "a  b\n\n1  2\n"}
    for update in (True, False):
        golden = Golden("kube/test_x.py::test_y[z]", update=update, folder=tmp_path)
        for label, text in texts.items():
            golden(text, label)
    assert read(tmp_path / "kube.txt") == {
        "kube/test_x.py::test_y[z]": "one line",
        "kube/test_x.py::test_y[z] table": "a  b\n\n1  2",
    }


def test_tests_without_a_package_share_a_file(tmp_path: Path) -> None:
    Golden("test_x.py::test_y", update=True, folder=tmp_path)("text")
    assert read(tmp_path / "project.txt") == {"test_x.py::test_y": "text"}


def test_another_text_and_a_missing_entry_fail(tmp_path: Path) -> None:
    Golden("kube/test_x.py::test_y", update=True, folder=tmp_path)("text")
    golden = Golden("kube/test_x.py::test_y", folder=tmp_path)
    with pytest.raises(AssertionError, match="make golden"):
        golden("another text")
    with pytest.raises(AssertionError, match="make golden"):
        golden("text", "label")


def test_every_entry_belongs_to_a_test() -> None:
    def function_exists(test: str) -> bool:
        module, _, function = test.split()[0].partition("::")
        path = TESTS / "unit" / module
        return path.exists() and f"def {function.partition('[')[0]}(" in path.read_text(encoding="utf-8")

    orphans = [entry for file in FOLDER.glob("*.txt") for entry in read(file) if not function_exists(entry)]
    assert not orphans, "run `make golden`"
