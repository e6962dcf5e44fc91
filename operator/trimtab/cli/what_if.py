"""``trimtab what-if``: forecasts what happens if nodes fail, are drained or added, or objects are applied."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from trimtab.cli.errors import report_errors
from trimtab.cli.options import STDIN, cluster_options, output_option, parse_time
from trimtab.kube.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trimtab.cli.cluster_input import ClusterSource
    from trimtab.inspection.cluster import ClusterInput
    from trimtab.inspection.scenario import Scenario
    from trimtab.kube.api import Api

SHOWN: Final = 20
"""Number of rows of each table, except with ``--all``."""

Document = dict[str, Any]


@click.command("what-if")
@cluster_options
@click.option(
    "--without",
    metavar="NODES",
    multiple=True,
    help="Nodes that fail: node/NAME, nodegroup/NAME, zone=NAME or LABEL=VALUE. May be given several times.",
)
@click.option(
    "--drain",
    metavar="NODES",
    multiple=True,
    help="Nodes that are cordoned and drained, selected as with --without. PodDisruptionBudgets protect their pods.",
)
@click.option("--add", metavar="GROUP=N", multiple=True, help="Node group to add N nodes to.")
@click.option(
    "--apply",
    "apply_files",
    metavar="FILE|-",
    multiple=True,
    help="File with objects that are created or changed: workloads, pods, PodDisruptionBudgets, PriorityClasses and "
    "other kinds of cluster files.",
)
@click.option(
    "--policy",
    "policies",
    metavar="FILE|-",
    multiple=True,
    help="File with policies, instead of those in the cluster; the same kinds as in `trimtab plan`.",
)
@click.option(
    "--each",
    metavar="zone|node|LABEL",
    help="Simulate the failure of each zone, each node or the nodes with each value of a label, and compare the "
    "results.",
)
@click.option(
    "--index",
    metavar="I/N",
    help="With --each: compute only every N-th failure, beginning with the I-th, counted from 0. This splits the "
    "work among N processes; see --merge.",
)
@click.option(
    "--merge",
    metavar="FILE",
    multiple=True,
    help="JSON output of a run with --index; may be given several times. All outputs are merged into one table, "
    "and no cluster is read.",
)
@click.option(
    "--job",
    metavar="N",
    type=click.IntRange(1, 10_000),
    help="With --each on a live cluster: compute the failures in N pods of an Indexed Job, instead of splitting "
    "them with --index. The Job is deleted afterwards.",
)
@click.option(
    "--job-namespace",
    metavar="NAME",
    default="trimtab-system",
    show_default=True,
    help="Namespace of the operator, whose service account the Job's pods use.",
)
@click.option("--image", metavar="IMAGE", default="", help="Image of the Job's pods. Default: the operator's.")
@click.option("--processes", type=click.IntRange(1), help="With --each: number of processes. Default: one per CPU.")
@click.option("--now", metavar="RFC3339", type=parse_time, help="Time of the forecast. Default: the current time.")
@click.option("--all", "everything", is_flag=True, help=f"Show all rows of each table, not only the first {SHOWN}.")
@output_option("table", "json", "yaml")
def what_if(
    *,
    cluster: str | None,
    kubeconfig: str | None,
    context: str | None,
    skip_invalid: bool,
    without: tuple[str, ...],
    drain: tuple[str, ...],
    add: tuple[str, ...],
    apply_files: tuple[str, ...],
    policies: tuple[str, ...],
    each: str | None,
    index: str | None,
    merge: tuple[str, ...],
    job: int | None,
    job_namespace: str,
    image: str,
    processes: int | None,
    now: int | None,
    everything: bool,
    form: str,
) -> None:
    """Forecast what happens if nodes fail, are drained or added, or objects are applied. Nothing is changed.

    \b
    trimtab what-if --without node/n1                which pods move, stay pending or are lost
    trimtab what-if --without zone=a                 a zone fails
    trimtab what-if --drain pool=old --add new=3     replace a node pool
    trimtab what-if --apply deployment.yaml          where new pods would run
    trimtab what-if --policy new.yaml --without …    with other policies than those in the cluster
    trimtab what-if --each zone                      which zone's failure is the worst

    Failed nodes and their machines are removed. The scheduler places the recreated pods in the order of its queue, with
    preemption. The autoscaler then adds nodes for pods that stay pending.
    """  # noqa: D301
    from trimtab.cli.cluster_input import ClusterSource, load_cluster_input, read_policy_set
    from trimtab.cli.plan import warn_of_defaults
    from trimtab.inspection.forecast import what_if as forecast
    from trimtab.inspection.scenario import Scenario, parse_addition, parse_selection

    source = ClusterSource(cluster=cluster, kubeconfig=kubeconfig, context=context, skip_invalid=skip_invalid)
    source.check()
    if (*policies, *apply_files, cluster).count(STDIN) > 1:
        raise click.UsageError("standard input (-) can be given only once: for --cluster, one --policy or one --apply")
    if not (without or drain or add or apply_files or policies or each or merge):
        raise click.UsageError("give a scenario: --without, --drain, --add, --apply, --policy or --each")
    if index is not None and each is None:
        raise click.UsageError("--index needs --each")
    if job is not None and (each is None or index or cluster or apply_files or policies or now):
        raise click.UsageError(
            "--job needs --each and a live cluster, and takes no --index, --apply, --policy and --now"
        )
    most = None if everything else SHOWN
    with report_errors():
        if merge:
            show_or_emit(merged(merge), form, show_survival, most=most)
            return
        if job is not None and each is not None:
            selected = [("--each", (each,)), ("--without", without), ("--drain", drain), ("--add", add)]
            arguments = [word for option, values in selected for value in values for word in (option, value)]
            table = survival_of_job(source, arguments, job, namespace=job_namespace, image=image)
            show_or_emit(table, form, show_survival, most=most)
            return
        part = None if index is None else parse_part(index)
        scenario = Scenario(
            without=tuple(map(parse_selection, without)),
            drain=tuple(map(parse_selection, drain)),
            add=dict(map(parse_addition, add)),
            apply=read_manifests(apply_files),
        )
        wanted = read_policy_set(source, policies)
        warn_of_defaults(wanted)
        loaded = load_cluster_input(source, wanted, now=now, machines=True)
        if each is None:
            show_or_emit(forecast(loaded, scenario), form, show_forecast, most=most)
        else:
            table = survival(loaded, scenario, each, part=part, processes=processes)
            show_or_emit(table, form, show_survival, most=most)


def show_or_emit(document: Document, form: str, show: Callable[..., None], *, most: int | None) -> None:
    """Print a document: as tables with ``show``, or as JSON or YAML."""
    from trimtab.cli.output import emit

    if form == "table":
        show(document, most=most)
    else:
        emit(document, form)


def parse_part(text: str) -> tuple[int, int]:
    """Parse ``INDEX/PARTS``.

    Raises:
        InputError: it is no share, such as 0/4 or 3/4.
    """
    index, _, parts = text.partition("/")
    if not (index.isdecimal() and parts.isdecimal() and int(index) < int(parts) <= 100_000):
        raise InputError(f"{text!r} is not a share of the work; write I/N with I from 0 to N-1", field="--index")
    return int(index), int(parts)


def survival(
    cluster: ClusterInput, scenario: Scenario, each: str, *, part: tuple[int, int] | None, processes: int | None
) -> Document:
    """Return the survival table, or the share of one worker, with progress on stderr.

    Args:
        cluster: the cluster.
        scenario: further changes, which apply to all rows.
        each: ``node``, ``zone`` or the key of a label.
        part: the index of this worker and the number of workers; ``None`` to do all work here.
        processes: number of processes; ``None`` for one for each CPU.

    Raises:
        InputError: no node has the label.
    """
    import os
    import sys

    from trimtab.inspection.survival import failure_selections, part_of, survival_table, survive_each

    selections = failure_selections(cluster.snapshot, each)
    mine = selections if part is None else part_of(selections, *part)
    shown = sys.stderr.isatty()

    def progress(done: int) -> None:
        if shown:
            click.echo(f"\r{done} of {len(mine)}", err=True, nl=done == len(mine))

    number = processes or len(os.sched_getaffinity(0))
    rows = survive_each(cluster, mine, scenario, processes=number, on_progress=progress)
    return survival_table(each, rows, part="" if part is None else f"{part[0]}/{part[1]}")


JOB_TIMEOUT: Final = 3600.0
"""Seconds after which a Job is given up."""


def survival_of_job(
    source: ClusterSource, arguments: Sequence[str], workers: int, *, namespace: str, image: str
) -> Document:
    """Return the survival table that an Indexed Job in the live cluster computes.

    Args:
        source: the live cluster.
        arguments: the arguments that select the scenario.
        workers: number of pods.
        namespace: the namespace of the operator.
        image: the image of the pods; empty for the operator's.

    Raises:
        CommandError: the Job fails, or the API server refuses a request.
    """
    from trimtab.cli.live import with_api
    from trimtab.cli.survival_job import find_worker, run_job

    async def work(api: Api) -> Document:
        worker = await find_worker(api, namespace, image=image)
        return await run_job(api, worker, arguments, workers, timeout=JOB_TIMEOUT)

    return with_api(work, kubeconfig=source.kubeconfig, context=source.context)


def merged(files: Sequence[str]) -> Document:
    """Return the table that is merged from the files of workers.

    Raises:
        InputError: a file is no survival table, or the tables do not belong together.
    """
    from trimtab.inspection.survival import merge_tables

    tables = read_manifests(files)
    for table in tables:
        if table.get("kind") != "SurvivalTable":
            raise InputError(f"kind is {table.get('kind')!r}, not SurvivalTable", source=", ".join(files))
    return merge_tables([dict(table) for table in tables])


def show_survival(document: Document, *, most: int | None) -> None:
    """Print a survival table, the worst failure first.

    Args:
        document: the result of :func:`trimtab.inspection.survival.survival_table`.
        most: the maximum number of rows; ``None`` for all.
    """
    from trimtab.cli.output import echo, table

    counts, rows = document["summary"], document["failures"]
    echo(
        f"Of {_number(counts['failures'], 'failure')} of one {document['each']}, {counts['survived']} leave no pod "
        "pending or lost."
    )
    echo()
    keys = ("nodes", "rescheduled", "pending", "lost", "preempted", "nodesAdded", "budgetsViolated")
    headers = ["WITHOUT", "NODES", "RESCHEDULED", "PENDING", "LOST", "PREEMPTED", "NODES ADDED", "PDBS VIOLATED"]
    echo(table(headers, [[row["without"], *(str(row[key]) for key in keys)] for row in rows[:most]]))
    if most is not None and len(rows) > most:
        echo(f"… and {len(rows) - most} more (--all shows them)")


def read_manifests(files: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
    """Read the objects in files, including those of v1 Lists.

    Raises:
        InputError: a file cannot be read, is neither JSON nor YAML, or contains no object.
    """
    import sys

    import msgspec

    from trimtab.kube.wire.files.reader import read_documents

    found: list[Mapping[str, Any]] = []
    for name in files:
        number = len(found)
        for source, document in read_documents(sys.stdin.buffer if name == STDIN else Path(name)):
            if document.fault is not None:
                raise InputError(document.fault.message, source=source)
            content = document.content
            manifest = msgspec.json.decode(content) if isinstance(content, msgspec.Raw) else dict(content)
            found.append(manifest if manifest.get("kind") else {**manifest, "kind": document.kind})
        if len(found) == number:
            raise InputError("contains no object", source=name)
    return tuple(found)


# --- the table --------------------------------------------------------------------------------------------------------


def show_forecast(document: Document, *, most: int | None) -> None:
    """Print a forecast: the answer in one sentence, then tables.

    Args:
        document: the result of :func:`trimtab.inspection.forecast.what_if`.
        most: the maximum number of rows of each table; ``None`` for all.
    """
    from trimtab.cli.output import echo

    echo(_sentence(document))
    _show(
        "Stay pending",
        ["POD", "FROM", "NODE GROUP", "REASON"],
        [
            [
                each["pod"],
                each.get("from", ""),
                each.get("nodeGroup") or each.get("scaleUp", {}).get("reason", ""),
                each["message"],
            ]
            for each in document["pending"]
        ],
        most,
    )
    _show("Lost", ["POD", "FROM", "REASON"], [[e["pod"], e["from"], e["reason"]] for e in document["lost"]], most)
    _show(
        "Not evicted",
        ["POD", "NODE", "REASON"],
        [[each["pod"], each["from"], each["message"]] for each in document["blocked"]],
        most,
    )
    _show(
        "Node groups scaled up",
        ["NODE GROUP", "FROM", "TO", "PODS", "COST PER HOUR", "MESSAGE"],
        [
            [
                each["nodeGroup"],
                str(each["from"]),
                str(each["to"]),
                str(len(each["pods"])),
                f"{each['hourlyCost']:g}" if "hourlyCost" in each else "",
                each["message"],
            ]
            for each in document["scaleUp"]
        ],
        most,
    )
    _show(
        "PodDisruptionBudgets",
        ["PDB", "DISRUPTIONS ALLOWED", "PODS", "VIOLATED"],
        [
            [each["pdb"], str(each["disruptionsAllowed"]), str(each["pods"]), "yes" if each["violated"] else "no"]
            for each in document["budgets"]
        ],
        most,
    )
    _show(
        "Preempted",
        ["POD", "NODE", "FOR"],
        [[each["pod"], each["node"], each["for"]] for each in document["preempted"]],
        most,
    )
    _show("Rescheduled", ["POD", "FROM", "TO"], [[e["pod"], e["from"], e["to"]] for e in document["rescheduled"]], most)
    _show("Started", ["POD", "NODE"], [[each["pod"], each["to"]] for each in document["scheduled"]], most)
    _show("Deleted", ["POD"], [[each] for each in document["deleted"]], most)
    after = document["descheduling"]
    if after is not None and after["evictions"]:
        echo(f"\nAfterwards, DeschedulerPolicies would evict {_number(after['evictions'], 'pod')}.")


def _sentence(document: Document) -> str:
    counts = document["summary"]
    what = [
        *(f"without {each}" for each in document["removed"]),
        *(f"with {each} drained" for each in document["drained"]),
        *(f"with {each['to'] - each['from']} more of {each['nodeGroup']}" for each in document["added"]),
        *(f"with {each}" for each in document["applied"]),
    ]
    results = [
        f"{_number(counts['rescheduled'], 'pod')} rescheduled",
        *([f"{counts['scheduled']} started"] if counts["scheduled"] else []),
        f"{counts['pending']} pending",
        f"{counts['lost']} lost",
        *([f"{counts['blocked']} not evicted"] if counts["blocked"] else []),
        *([f"{counts['preempted']} preempted"] if counts["preempted"] else []),
        *([f"{_number(counts['nodesAdded'], 'node')} added"] if counts["nodesAdded"] else []),
    ]
    subject = " and ".join(what) or "with these policies"
    return f"{subject[0].upper()}{subject[1:]}: {', '.join(results)}."


def _show(title: str, headers: list[str], rows: Sequence[list[str]], most: int | None) -> None:
    from trimtab.cli.output import echo, table

    if not rows:
        return
    echo()
    echo(f"{title}: {len(rows)}")
    echo(table(headers, rows[:most], indent="  "))
    if most is not None and len(rows) > most:
        echo(f"  … and {len(rows) - most} more (--all shows them)")


def _number(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
