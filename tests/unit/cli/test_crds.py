"""``trimtab crds`` writes the definitions, and tells what it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.golden import Golden


def test_written_files_have_no_drift(run, tmp_path: Path) -> None:
    assert run("crds", tmp_path / "new" / "crds").exit_code == 0
    assert run("crds", "--check", tmp_path / "new" / "crds").exit_code == 0


@pytest.mark.parametrize("content", [b"", b"\xff\xfe"])
def test_other_content_is_drift(run, tmp_path: Path, content: bytes, golden: Golden) -> None:
    run("crds", tmp_path)
    changed = min(tmp_path.iterdir())
    changed.write_bytes(content)

    result = run("crds", "--check", tmp_path)

    assert result.exit_code == 1
    golden(result.stderr.replace(str(tmp_path), "crds"))


def test_folder_error_is_one_line(run, tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "file").write_text("")

    result = run("crds", tmp_path / "file" / "crds")

    assert result.exit_code == 1
    golden(result.stderr.replace(str(tmp_path), "folder"))


def test_missing_files_are_drift_and_the_reference_is_checked_too(run, tmp_path: Path, golden: Golden) -> None:
    definitions, docs = tmp_path / "crds", tmp_path / "reference"
    assert run("crds", "--docs", docs, definitions).exit_code == 0
    assert run("crds", "--check", "--docs", docs, definitions).exit_code == 0
    removed, changed = min(definitions.iterdir()), min(docs.iterdir())
    removed.unlink()
    changed.write_text("")

    result = run("crds", "--check", "--docs", docs, definitions)

    assert result.exit_code == 1
    assert [line.partition(":")[0] for line in result.stderr.splitlines()] == [str(removed), str(changed)]
    golden(result.stderr.replace(str(tmp_path), "folder"))
    assert not removed.exists()
