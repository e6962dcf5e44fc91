"""``trimtab crds`` writes the definitions, and tells what it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_what_was_written_has_not_drifted(run, tmp_path: Path) -> None:
    assert run("crds", tmp_path / "new" / "crds").exit_code == 0
    assert run("crds", "--check", tmp_path / "new" / "crds").exit_code == 0


@pytest.mark.parametrize("content", [b"", b"\xff\xfe"])
def test_a_file_that_is_something_else_is_drift(run, tmp_path: Path, content: bytes) -> None:
    run("crds", tmp_path)
    changed = min(tmp_path.iterdir())
    changed.write_bytes(content)

    result = run("crds", "--check", tmp_path)

    assert result.exit_code == 1
    assert result.stderr == f"{changed}: is not up to date with the types; write it with `trimtab crds`\n"


def test_a_folder_that_cannot_be_made_is_told_in_a_line(run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    result = run("crds", tmp_path / "file" / "crds")

    assert (result.exit_code, result.stderr) == (1, f"trimtab: {tmp_path}/file/crds: Not a directory\n")
