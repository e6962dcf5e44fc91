"""``trimtab status``: the state of the operator and of all custom resources on one screen."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from trimtab.cli.errors import FAILED, report_errors
from trimtab.cli.options import check_connection, output_option, parse_time
from trimtab.kube.errors import InputError

if TYPE_CHECKING:
    from trimtab.inspection.status import Document, OperatorInstance, OperatorState
    from trimtab.kube.api import Api

PERIOD: Final = 2.0
"""Seconds between two reads with ``--watch``."""

MAX_ACTIONS: Final = 8
"""Maximum number of recorded actions that are shown."""

_CLEAR: Final = "\x1b[H\x1b[J"
"""Moves the cursor to the top left corner and clears the rest of the screen."""


@click.command()
@click.option(
    "--cluster",
    metavar="FILE|DIR",
    help="Output of `kubectl get dp,ca,ma,tm,… -A -o json|yaml`, the output of `trimtab snapshot`, or a folder of "
    "such files. Default: the live cluster.",
)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="Kubeconfig file. Default: $KUBECONFIG, then ~/.kube/config, then the pod's service account.",
)
@click.option("--context", metavar="NAME", help="Context of the kubeconfig. Default: its current context.")
@click.option("-w", "--watch", is_flag=True, help=f"Read every {PERIOD:g} s and redraw after changes, until Ctrl-C.")
@click.option(
    "--exit-code",
    is_flag=True,
    help="Exit with status 1 if a resource is Degraded, NotReady or Conflicting, or if the operator is not running.",
)
@click.option("--now", metavar="RFC3339", type=parse_time, help="Time to report for. Default: the current time.")
@output_option("table", "json")
def status(
    *,
    cluster: str | None,
    kubeconfig: str | None,
    context: str | None,
    watch: bool,
    exit_code: bool,
    now: int | None,
    form: str,
) -> None:
    """Show the state of the operator and of all custom resources, those with problems first.

    The first line says whether anything is wrong. For the operator, the output contains the process that runs the
    controllers and since when, the number of replicas and the version. For each custom resource it contains its state,
    mode, next run, what is in flight, what blocks it (waiting evictions, conflicts, closed windows, backoff, missing
    permissions), and its last recorded actions.

    The states are, the worst first: Degraded (something prevents what the spec asks for, for example a missing
    permission), NotReady, Conflicting, Unknown (the operator has written no status), Stale (the status is for an
    earlier spec), Waiting (evictions wait), Acting, Suspended, OutsideWindows and Idle.

    The exit status is 0, unless --exit-code is given. Then it is 1 if a resource is Degraded, NotReady or Conflicting,
    or if the operator is not running.
    """
    from trimtab.cli.output import emit

    check_connection(cluster, kubeconfig, context)
    if watch and (cluster is not None or form == "json" or now is not None):
        raise click.UsageError("--watch cannot be combined with --cluster, --now or -o json")
    with report_errors():
        if watch:
            with contextlib.suppress(KeyboardInterrupt):
                _watch(kubeconfig, context)
            return
        document = _of_files(cluster, now) if cluster is not None else _of_server(kubeconfig, context, now)
        emit(document, form) if form == "json" else _print(document)
        if exit_code and document["degraded"]:
            sys.exit(FAILED)


def _of_files(cluster: str, now: float | None) -> Document:
    """Read the custom resources in files. Whether the operator runs is not in files."""
    from trimtab.cli.cluster_input import policy_set_of
    from trimtab.cli.cluster_policies import cluster_policies
    from trimtab.inspection.history import entries_of
    from trimtab.inspection.live import POLICY_KINDS
    from trimtab.inspection.status import status_document
    from trimtab.kube.clock import SYSTEM_CLOCK
    from trimtab.kube.resources import NODES

    found = cluster_policies(cluster, resources=POLICY_KINDS)
    recorded = cluster_policies(cluster, resources=_history_resources())
    history = entries_of([_content(document) for _, document in recorded])
    invalid: list[InputError] = []
    policies = policy_set_of(found, invalid.append)
    if now is not None:
        return status_document(policies, now=now, history=history, invalid=list(map(str, invalid)))
    nodes = [_content(document) for _, document in cluster_policies(cluster, resources=(NODES,))]
    return status_document(
        policies,
        now=SYSTEM_CLOCK.now(),
        history=history,
        invalid=list(map(str, invalid)),
        read_at=max(map(_heartbeat, nodes), default=0.0),
    )


def _of_server(kubeconfig: str | None, context: str | None, now: float | None) -> Document:
    from trimtab.cli.live import with_api

    return with_api(partial(read_status, now=now), kubeconfig=kubeconfig, context=context)


def _watch(kubeconfig: str | None, context: str | None) -> None:
    """Show the status and redraw it whenever it has changed, until the process is interrupted."""
    from trimtab.cli.live import with_api

    async def work(api: Api) -> None:
        shown = None
        warned: set[str] = set()

        def warn(message: str) -> None:
            if message not in warned:
                warned.add(message)
                click.echo(f"trimtab: warning: {message}", err=True)

        while True:
            document = await read_status(api, warn=warn)
            current = {key: value for key, value in document.items() if key != "time"}
            if current != shown:
                shown = current
                if sys.stdout.isatty():
                    click.echo(_CLEAR, nl=False)
                _print(document)
            await asyncio.sleep(PERIOD)

    with_api(work, kubeconfig=kubeconfig, context=context)


async def read_status(api: Api, *, warn: Callable[[str], None] | None = None, now: float | None = None) -> Document:
    """Read the status of the live cluster.

    Args:
        api: the API server.
        warn: called with a message for each kind that the user may not read; ``None`` to print it on stderr.
        now: the time to report for, in seconds since the epoch; ``None`` for the current time.

    Raises:
        LoadFailed: the API server does not respond or refuses a request.
    """
    from trimtab.cli.cluster_input import policy_set_of
    from trimtab.cli.cluster_policies import read_custom_resources
    from trimtab.inspection.history import entries_of
    from trimtab.inspection.status import status_document
    from trimtab.kube.clock import SYSTEM_CLOCK

    options: dict[str, Any] = {} if warn is None else {"warn": warn}
    found = await read_custom_resources(api, **options)
    recorded = await read_custom_resources(api, _history_resources(), **options)
    history = entries_of([_content(document) for _, document in recorded])
    operator = await read_operator(api)
    invalid: list[InputError] = []
    policies = policy_set_of(found, invalid.append)
    return status_document(
        policies,
        now=SYSTEM_CLOCK.now() if now is None else now,
        history=history,
        operator=operator,
        invalid=list(map(str, invalid)),
        read_at=await _newest_renewal(api, operator) if now is None else None,
    )


async def _newest_renewal(api: Api, operator: OperatorState) -> float:
    """Return the newest time at which a Lease was renewed, in seconds since the epoch; 0 if none can be read.

    It is close to the cluster's time even if this machine's clock is wrong or the operator does not run, because the
    control plane renews its Leases in kube-system every few seconds.
    """
    from trimtab.kube.api import ApiError
    from trimtab.kube.resources import LEASES
    from trimtab.kube.verbs import list_objects

    try:
        leases = (await list_objects(api, LEASES, namespace="kube-system")).items
    except ApiError:
        leases = []
    return max((each.renewed for each in (*operator.instances, *map(_instance, leases))), default=0.0)


def _heartbeat(node: dict[str, Any]) -> float:
    """Return the last heartbeat in a node's conditions, in seconds since the epoch; 0 if there is none."""
    try:
        return max(
            datetime.fromisoformat(each["lastHeartbeatTime"]).timestamp() for each in node["status"]["conditions"]
        )
    except (KeyError, TypeError, ValueError):
        return 0.0


def _history_resources() -> Sequence[Any]:
    from trimtab.kube.resources import DESCHEDULING_RUNS, HISTORY_RECORDS

    return (HISTORY_RECORDS, DESCHEDULING_RUNS)


def _content(document: Any) -> dict[str, Any]:
    import msgspec

    content = document.content
    found = msgspec.json.decode(content) if isinstance(content, msgspec.Raw) else dict(content)
    return {"kind": document.kind, **found} if document.kind else found


async def read_operator(api: Api) -> OperatorState:
    """Read which processes run controllers, from the Leases that they renew, and the replicas of their Deployment.

    What the user may not read is unknown.
    """
    from trimtab.inspection.status import OperatorState
    from trimtab.kube.api import ApiError
    from trimtab.kube.resources import LEASES
    from trimtab.kube.verbs import list_objects
    from trimtab.runtime.leader_election.duplicate_operators import LABEL

    try:
        leases = await list_objects(api, LEASES, label_selector=LABEL)
    except ApiError as error:
        return OperatorState(unknown=str(error))
    instances = tuple(map(_instance, leases.items))
    namespaces = sorted({each.namespace for each in instances})
    ready, replicas, version = await _deployment(api, namespaces)
    return OperatorState(instances=instances, ready=ready, replicas=replicas, version=version)


def _instance(lease: dict[str, Any]) -> OperatorInstance:
    from trimtab.inspection.status import OperatorInstance
    from trimtab.runtime.leader_election.duplicate_operators import ACTIVE_FOR, CONTROLLERS
    from trimtab.runtime.leader_election.lease_lock import Lease

    found = Lease.from_json(lease)
    controllers = (found.metadata.get("annotations") or {}).get(CONTROLLERS, "")
    try:
        renewed = datetime.fromisoformat(found.renewed).timestamp()
    except ValueError:
        renewed = 0.0
    return OperatorInstance(
        identity=found.holder,
        namespace=found.metadata.get("namespace", ""),
        controllers=tuple(each for each in controllers.split(",") if each),
        since=found.acquired.partition(".")[0] + "Z" if "." in found.acquired else found.acquired,
        renewed=renewed,
        duration=ACTIVE_FOR,
    )


async def _deployment(api: Api, namespaces: Sequence[str]) -> tuple[int | None, int | None, str]:
    """Return the ready and desired replicas of the operator's Deployments, and its version."""
    from trimtab.cli.operator_permissions import OPERATOR_SELECTOR
    from trimtab.kube.api import ApiError
    from trimtab.kube.resources import DEPLOYMENTS
    from trimtab.kube.verbs import list_objects

    found: list[dict[str, Any]] = []
    for namespace in namespaces:
        try:
            listed = await list_objects(api, DEPLOYMENTS, namespace=namespace, label_selector=OPERATOR_SELECTOR)
        except ApiError:
            continue
        found += listed.items
    if not found:
        return None, None, ""
    ready = sum((each.get("status") or {}).get("readyReplicas") or 0 for each in found)
    replicas = sum((each.get("spec") or {}).get("replicas") or 0 for each in found)
    labels = found[0]["metadata"].get("labels") or {}
    return ready, replicas, labels.get("app.kubernetes.io/version", "")


# --- the table --------------------------------------------------------------------------------------------------------


def _print(document: Document) -> None:
    from trimtab.cli.output import echo, table

    echo(f"{click.style('trimtab', bold=True)}: {document['message']}.")
    operator = document["operator"]
    if operator is not None:
        echo(f"Operator: {operator['message']}{_replicas(operator)}.")
    for message in document["invalid"]:
        echo(f"Invalid: {message}")
    resources = document["resources"]
    if resources:
        headers = ["RESOURCE", "STATE", "MODE", "NEXT RUN", "LAST RUN", "IN FLIGHT", "BLOCKED BY"]
        echo()
        echo(table(headers, [_row(each) for each in resources]))
    problems = [(each, block) for each in resources for block in each["blockedBy"]]
    if problems:
        echo()
        echo(click.style("Blocked by", bold=True))
        for resource, block in problems:
            since = f" (since {block['since']})" if block["since"] else ""
            echo(f"  {_name(resource)}: {block['reason']}{since}: {block['message']}")
    actions = [(action, each) for each in resources for action in each["lastActions"]]
    actions.sort(key=lambda pair: pair[0]["time"], reverse=True)
    if actions:
        echo()
        echo(click.style("Last actions", bold=True))
        rows = [
            [action["time"], _name(resource), action["action"], action["object"], action["result"], action["reason"]]
            for action, resource in actions[:MAX_ACTIONS]
        ]
        echo(table(["TIME", "RESOURCE", "ACTION", "OBJECT", "RESULT", "REASON"], rows, indent="  "))
    if problems:
        kind, name = problems[0][0]["kind"], problems[0][0]["name"]
        echo(f"\nNext: trimtab explain policy {kind.lower()}/{name}")


def _replicas(operator: Document) -> str:
    parts = []
    if operator["replicas"] is not None:
        parts.append(f"{operator['readyReplicas']} of {operator['replicas']} replicas are ready")
    if operator["version"]:
        parts.append(f"version {operator['version']}")
    if len(operator["leaders"]) > 1:
        parts.append(f"{len(operator['leaders'])} processes run controllers")
    return "".join(f"; {part}" for part in parts)


def _row(resource: Document) -> list[str]:
    reasons = ", ".join(dict.fromkeys(each["reason"] for each in resource["blockedBy"]))
    return [
        _name(resource),
        resource["state"],
        resource["mode"],
        resource["nextRun"] or "",
        resource["lastRun"] or "",
        resource["inFlight"],
        reasons,
    ]


def _name(resource: Document) -> str:
    namespace = f"{resource['namespace']}/" if resource["namespace"] else ""
    return f"{resource['kind']} {namespace}{resource['name']}"
