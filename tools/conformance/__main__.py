"""``python -m tools.conformance``, or ``make conformance``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from tools.conformance.results import (
    GROUPS,
    SIDES,
    TRIMTAB,
    merge_results,
    read_results,
    regressions,
    summary,
    tables,
)
from tools.conformance.runs import binary, cluster_of, run_group
from tools.generate import ROOT, between
from trimtab.cli.errors import CommandError, report_errors
from trimtab_local import LocalError
from trimtab_local.progress import PlainProgress, for_terminal
from trimtab_local.versions import DEFAULT_VERSION

PAGE: Final = ROOT / "docs" / "kubernetes-conformance.md"
RESULTS: Final = "results.json"


@click.command()
@click.option("--side", "sides", multiple=True, type=click.Choice(SIDES), help="Run with this side.  [default: both]")
@click.option(
    "--group", "groups", multiple=True, type=click.Choice(list(GROUPS)), help="Run this group.  [default: all]"
)
@click.option("--focus", default="", metavar="REGEX", help="Run only specs whose name matches.")
@click.option(
    "--jobs", type=click.IntRange(1), default=2, show_default=True, help="Clusters that run at the same time."
)
@click.option("--no-run", is_flag=True, help="Run nothing; compare the stored results.")
@click.option("--build", is_flag=True, help="Build the e2e binary and run nothing.")
@click.option(
    "--results",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=ROOT / "build" / "conformance",
    help="Directory of results, Ginkgo's reports and logs; earlier results remain.  [default: build/conformance]",
)
@click.option("--write-page", is_flag=True, help=f"Write the table to docs/{PAGE.name}.")
def main(
    *,
    sides: tuple[str, ...],
    groups: tuple[str, ...],
    focus: str,
    jobs: int,
    no_run: bool,
    build: bool,
    directory: Path,
    write_page: bool,
) -> None:
    """Run Kubernetes' e2e specs with Kubernetes' components and with trimtab, and compare the results.

    Exit status 1: a spec passes with Kubernetes' components and does not pass with trimtab.
    """
    chosen = [group for group in GROUPS if not groups or group in groups]
    try:
        with report_errors():
            if build:
                click.echo(binary(for_terminal()))
                return
            if not no_run:
                wanted = [side for side in SIDES if not sides or side in sides]
                run(wanted, chosen, focus, directory.absolute(), jobs=jobs)
            results = read_results(directory / RESULTS)
    except LocalError as error:
        raise CommandError(str(error)) from error
    click.echo(tables(results))
    click.echo(summary(results))
    if write_page:
        ran = datetime.fromtimestamp((directory / RESULTS).stat().st_mtime, UTC)
        found = f"The last run was on {ran:%Y-%m-%d} with Kubernetes {DEFAULT_VERSION}.\n\n{tables(results)}"
        PAGE.write_text(between(PAGE.read_text("utf-8"), "results", found, by="make conformance"), "utf-8")
    failed = regressions(results, chosen) if no_run or not sides or TRIMTAB in sides else []
    for group, name in failed:
        click.echo(f"{group}: {name}: passes with {GROUPS[group]} and not with trimtab", err=True)
    sys.exit(1 if failed else 0)


def run(sides: Sequence[str], groups: Sequence[str], focus: str, directory: Path, *, jobs: int) -> None:
    """Run each group with each side on a cluster of its own, and store the results of each group when it is done.

    Args:
        sides: of :data:`tools.conformance.results.SIDES`.
        groups: of :data:`tools.conformance.results.GROUPS`.
        focus: a regular expression that the names of the specs must match; ``""`` for all.
        directory: the directory for results, reports and logs.
        jobs: the number of clusters that run at the same time. The specs wait most of the time.

    Raises:
        LocalError: a cluster did not start, or the e2e binary ended without a report.
    """
    progress = for_terminal() if jobs == 1 else PlainProgress(sys.stderr)
    executable = binary(progress)

    def run_one(side: str, group: str) -> None:
        with cluster_of(side, group, directory / side, progress) as cluster:
            found = run_group(executable, cluster, group, focus=focus, directory=directory / side, progress=progress)
        merge_results(directory / RESULTS, side, group, found, whole=not focus)

    with ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(run_one, side, group) for side in sides for group in groups]
        try:
            for each in as_completed(runs):
                each.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


if __name__ == "__main__":
    main()
