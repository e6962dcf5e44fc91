"""``python -m tools.generate [--check]``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from tools.generate import BASE, BUNDLE, CHART, REFERENCE, ROOT, between
from tools.generate.base import base_files
from tools.generate.bundle import bundle_files
from tools.generate.reference import autoscaler_flags_part, commands_part, metrics_part, reasons_part
from tools.generate.values import values_table
from tools.generate.wire import wire_files
from trimtab.api.crds import crd_files
from trimtab.api.reference import reference_files


def plain_files() -> dict[Path, str]:
    """Return all files that are generated without helm."""
    definitions = {ROOT / "crds" / name: text for name, text in crd_files().items()}
    definitions |= {CHART / "crds-generated" / name: text for name, text in crd_files().items()}
    parts = {
        CHART / "README.md": ("values", values_table()),
        REFERENCE / "cluster-autoscaler-flags.md": ("flags", autoscaler_flags_part()),
        REFERENCE / "chart-values.md": ("values", values_table()),
        REFERENCE / "cli.md": ("commands", commands_part()),
        REFERENCE / "metrics.md": ("metrics", metrics_part()),
        REFERENCE / "reasons.md": ("reasons", reasons_part()),
    }
    pages = {REFERENCE / name: text for name, text in reference_files().items()}
    return wire_files() | definitions | pages | {path: _with_part(path, *part) for path, part in parts.items()}


def all_files() -> dict[Path, str]:
    """Return all generated files; helm is built if it is missing."""
    rendered = {BASE / name: text for name, text in base_files().items()}
    rendered |= {BUNDLE / name: text for name, text in bundle_files().items()}
    return plain_files() | rendered


def drifted(wanted: Mapping[Path, str]) -> list[str]:
    """Return the missing and outdated files, relative to the repository."""
    return [
        str(path.relative_to(ROOT))
        for path, text in wanted.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def _with_part(path: Path, name: str, content: str) -> str:
    return between(path.read_text(encoding="utf-8"), name, content)


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; end with status 1 if a file is not up to date.")
def main(*, check: bool) -> None:
    """Write or check all generated files."""
    wanted = all_files()
    names = drifted(wanted)
    for name in names:
        if check:
            click.echo(f"{name}: not up to date; `make generate` writes it", err=True)
        else:
            path = ROOT / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
            click.echo(name)
    if check and names:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
