"""``trimtab crds``: writes the CustomResourceDefinitions, or checks whether files are up to date."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from trimtab.cli.errors import report_errors
from trimtab.cli.options import HELP_OPTIONS


@click.command(context_settings={"help_option_names": HELP_OPTIONS})
@click.argument("directory", metavar="[DIR]", default="crds", type=click.Path(path_type=Path, file_okay=False))
@click.option("--check", is_flag=True, help="Write nothing; exit with status 1 if a file is out of date.")
@click.option(
    "--docs",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Also write (or check) the reference pages in this folder.",
)
def crds(directory: Path, check: bool, docs: Path | None) -> None:
    """Write the CustomResourceDefinitions to DIR (default: crds), one file per kind.

    They match this version of trimtab. Install them with `kubectl apply -f DIR`. With --check, the command compares the
    files in DIR instead and lists those that differ.
    """
    from trimtab.api.crds import crd_files
    from trimtab.api.reference import reference_files

    wanted = {directory / name: text for name, text in crd_files().items()}
    if docs is not None:
        wanted |= {docs / name: text for name, text in reference_files().items()}
    if check:
        _check(wanted)
        return
    with report_errors():
        for path, text in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            click.echo(path)


def _check(wanted: Mapping[Path, str]) -> None:
    with report_errors():
        drifted = [path for path, text in wanted.items() if _read(path) != text]
    if not drifted:
        return
    for path in drifted:
        state = "is out of date" if path.exists() else "is missing"
        click.echo(f"{path}: {state}; run `trimtab crds` to write it", err=True)
    raise SystemExit(1)


def _read(path: Path) -> str | None:
    """Return the file's content, or ``None`` if it does not exist.

    Invalid UTF-8 is replaced, so that the file counts as outdated.
    """
    try:
        return path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return None
