"""``trimtab crds``: write the definitions of the custom resources from the types, or check files for drift."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from trimtab.cli.errors import reported


@click.command()
@click.argument("directory", metavar="[DIR]", default="crds", type=click.Path(path_type=Path, file_okay=False))
@click.option("--check", is_flag=True, help="Write nothing; end with status 1 if a file is not up to date.")
@click.option(
    "--docs",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write (or check) the reference pages as well.",
)
def crds(directory: Path, check: bool, docs: Path | None) -> None:
    """Write the custom resource definitions into DIR (default: crds), one file a kind.

    They are made from the types of this version of trimtab, and `kubectl apply -f DIR` takes them. With --check the
    files are compared instead, and those that differ are named.
    """
    from trimtab.api.crds import crd_files
    from trimtab.api.reference import reference_files

    wanted = {directory / name: text for name, text in crd_files().items()}
    if docs is not None:
        wanted |= {docs / name: text for name, text in reference_files().items()}
    if check:
        _check(wanted)
        return
    with reported():
        for path, text in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            click.echo(path)


def _check(wanted: Mapping[Path, str]) -> None:
    with reported():
        drifted = [path for path, text in wanted.items() if _read(path) != text]
    if not drifted:
        return
    for path in drifted:
        state = "is not up to date with the types" if path.exists() else "is missing"
        click.echo(f"{path}: {state}; write it with `trimtab crds`", err=True)
    raise SystemExit(1)


def _read(path: Path) -> str | None:
    """What the file says; bytes that are no text are no definitions, and are told as drift."""
    try:
        return path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return None
