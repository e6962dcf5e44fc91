"""``trimtab history``: what the controllers did, when and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from trimtab.cli.errors import report_errors
from trimtab.cli.options import cluster_options, namespace_option, output_option, parse_time

if TYPE_CHECKING:
    from trimtab.inspection.history import Subject

NAMESPACES: Final = ("namespace", "namespaces", "ns")


def parse_since(value: str) -> tuple[str, float]:
    """Parse a duration before now (``12h``, ``7d``) or an RFC 3339 time.

    Returns:
        ``("ago", seconds)`` or ``("at", seconds since the epoch)``.

    Raises:
        click.BadParameter: the value is neither.
    """
    from trimtab.api.scalars import parse_go_duration

    days = value.removesuffix("d")
    if days != value and days.isascii() and days.isdigit():
        return "ago", int(days) * 86400.0
    try:
        return "ago", parse_go_duration(value)
    except ValueError:
        pass
    try:
        return "at", float(parse_time(value))
    except click.BadParameter:
        raise click.BadParameter(
            f"{value!r} is neither a duration such as 12h or 7d nor a time such as 2026-11-20T12:00:00Z"
        ) from None


@click.command()
@click.argument("subject", metavar="[TYPE/NAME]", nargs=-1)
@click.option(
    "--since",
    metavar="DURATION|RFC3339",
    default="12h",
    show_default=True,
    type=parse_since,
    help="Start of the period.",
)
@click.option("--until", metavar="DURATION|RFC3339", type=parse_since, help="End of the period. Default: now.")
@click.option(
    "--now", metavar="RFC3339", type=parse_time, help="Time that durations refer to. Default: the current time."
)
@namespace_option
@cluster_options
@output_option("table", "json")
def history(
    *,
    subject: tuple[str, ...],
    since: tuple[str, float],
    until: tuple[str, float] | None,
    now: int | None,
    namespace: str | None,
    cluster: str | None,
    kubeconfig: str | None,
    context: str | None,
    skip_invalid: bool,
    form: str,
) -> None:
    """Show what the controllers did, and why, the latest action last.

    TYPE/NAME selects the actions on one object: pod/NAME (with -n, or pod/NAMESPACE/NAME), node/NAME, nodegroup/NAME,
    policy/NAME or namespace/NAME. The object may have been deleted.

    The actions are evictions, deletions and preemptions of pods, size changes of node groups, node removals, cordons
    and taints. They include those that the API server refused; the same refusal is recorded once an hour. They come
    from HistoryRecords, which the operator keeps for a week by default, and from DeschedulingRuns.
    """
    from trimtab.cli.cluster_input import ClusterSource, load_cluster_input
    from trimtab.cli.output import emit
    from trimtab.inspection.cluster import PolicySet
    from trimtab.inspection.history import history_document

    with report_errors():
        source = ClusterSource(cluster=cluster, kubeconfig=kubeconfig, context=context, skip_invalid=skip_invalid)
        source.check()
        wanted = _subject("/".join(subject), namespace, source)
        loaded = load_cluster_input(source, PolicySet(), history=True, objects=False)
        start, end = (_time(each, loaded.now if now is None else now) for each in (since, until or ("ago", 0.0)))
        document = history_document(loaded.history, since=start, until=end, subject=wanted)
        emit(document, form) if form == "json" else _print(document)


def _time(given: tuple[str, float], now: float) -> float:
    how, seconds = given
    return now - seconds if how == "ago" else seconds


def _subject(text: str, namespace: str | None, source: Any) -> Subject | None:
    """Parse the name of the object.

    Raises:
        InputError: this is not the name of an object.
    """
    from trimtab.cli.names import OBJECT_TYPES, parse_object_name, split_type
    from trimtab.cli.sources import default_namespace
    from trimtab.inspection.history import Subject
    from trimtab.kube.errors import InputError

    if not text:
        return None if namespace is None else Subject(type="namespace", name=namespace)
    prefix, _, rest = text.partition("/")
    if prefix.lower() in NAMESPACES and rest:
        return Subject(type="namespace", name=rest)
    split = split_type(text)
    if split is None or split[0] == "pdb":
        raise InputError(
            f"{text!r} is not an object with a history; give pod/NAME, node/NAME, nodegroup/NAME, policy/NAME or "
            "namespace/NAME"
        )
    [type_] = [each for each in OBJECT_TYPES if each.name == split[0]]
    default = (
        default_namespace(source.cluster, kubeconfig=source.kubeconfig, context=source.context)
        if type_.defaulted
        else ""
    )
    found = parse_object_name(split[1], type_, namespace=namespace, default_namespace=default)
    return Subject(type=type_.name, name=found.name, namespace=found.namespace)  # type: ignore[arg-type]


def _print(document: dict[str, Any]) -> None:
    from trimtab.cli.output import echo, table

    echo(f"{document['since']} to {document['until']}: {document['message']}.")
    if not document["entries"]:
        echo("The history contains what the operator did while it ran; --since selects a longer period.")
        return
    echo()
    rows = [
        [each["time"], each["action"], _object(each), _by(each), each["reason"], each["result"], _details(each)]
        for each in document["entries"]
    ]
    echo(table(["TIME", "ACTION", "OBJECT", "BY", "REASON", "RESULT", "DETAILS"], rows))


def _object(entry: dict[str, Any]) -> str:
    if "pod" in entry:
        return f"pod/{entry['pod']}"
    if entry["action"] in ("ScaleUp", "ScaleDown"):
        return f"nodegroup/{entry.get('nodeGroup', '')}"
    return f"node/{entry.get('node', '')}"


def _by(entry: dict[str, Any]) -> str:
    return "/".join(filter(None, (entry["controller"], entry.get("policy", ""), entry.get("strategy", ""))))


def _details(entry: dict[str, Any]) -> str:
    sizes = f"{entry.get('fromSize', 0)}→{entry.get('toSize', 0)}" if "nodeGroup" in entry and "toSize" in entry else ""
    moved = f"from {entry['node']}" if "pod" in entry and "node" in entry else ""
    moved += f" to {entry['target']}" if "target" in entry else ""
    refused = ": ".join(filter(None, (entry.get("resultReason") or "", entry.get("resultMessage", ""))))
    return "; ".join(filter(None, (sizes, moved, entry.get("taint", ""), refused, entry.get("message", ""))))
