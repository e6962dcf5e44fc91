"""``trimtab doctor``: checks the installation and the permissions of the user."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from trimtab.cli.errors import FAILED, report_errors
from trimtab.cli.options import connection_options, output_option

if TYPE_CHECKING:
    from trimtab.cli.operator_permissions import OperatorAccount
    from trimtab.inspection.doctor import Document
    from trimtab.kube.api import Api
    from trimtab.kube.permissions import Permission


@click.command()
@connection_options
@click.option(
    "--service-account",
    metavar="NAMESPACE/NAME",
    help="Service account of the operator, to check what it may do. Default: those of the Deployments with the label "
    "app.kubernetes.io/name=trimtab.",
)
@output_option("table", "json")
def doctor(*, kubeconfig: str | None, context: str | None, service_account: str | None, form: str) -> None:
    """Check the installation in the live cluster, and what you are permitted to read.

    The command checks whether the API server serves the custom resources, whether exactly one operator runs, and
    whether a custom resource is degraded or lacks permissions. For missing permissions, it shows the rules and the
    chart values that grant them.

    If you may create SubjectAccessReviews, the command also checks whether the operator's service accounts have the
    permissions that the custom resources in the cluster need.

    Finally, it lists the permissions that you lack for plan, explain, snapshot, what-if, status and history, with the
    rules of a ClusterRole that grants them.

    The exit status is 1 if a check has failed.
    """
    from functools import partial

    from trimtab.cli.live import with_api
    from trimtab.cli.operator_permissions import parse_account
    from trimtab.cli.output import emit

    with report_errors():
        account = None if service_account is None else parse_account(service_account)
        document = with_api(partial(examine, account=account), kubeconfig=kubeconfig, context=context)
        emit(document, form) if form == "json" else _print(document)
        if not document["healthy"]:
            sys.exit(FAILED)


def needed_permissions() -> tuple[Permission, ...]:
    """Return what the commands read in a live cluster."""
    from trimtab.cluster.kinds import REQUIRED
    from trimtab.inspection.live import POLICY_KINDS
    from trimtab.kube.permissions import Permission
    from trimtab.kube.resources import DESCHEDULING_RUNS, HISTORY_RECORDS, LEASES

    kinds = dict.fromkeys((*REQUIRED, *POLICY_KINDS, DESCHEDULING_RUNS, HISTORY_RECORDS, LEASES))
    return tuple(Permission("list", each) for each in kinds)


async def examine(api: Api, *, account: OperatorAccount | None = None) -> Document:
    """Run all checks.

    Args:
        api: the API server.
        account: the operator's service account; ``None`` for those of its Deployments.

    Raises:
        ApiError: the API server refuses a request that every user may send.
        Unreachable: there was no response.
    """
    from trimtab.cli.cluster_input import policy_set_of
    from trimtab.cli.cluster_policies import read_custom_resources
    from trimtab.cli.missing_permissions import missing_permissions
    from trimtab.cli.operator_permissions import check_operator_permissions
    from trimtab.cli.status import read_status
    from trimtab.inspection.doctor import check_definitions, check_status, check_user, doctor_document

    needed = needed_permissions()
    missing = await missing_permissions(api, needed)
    status = await read_status(api, warn=lambda _: None)  # the check of the user names what cannot be read
    found = await read_custom_resources(api, warn=lambda _: None)
    policies = policy_set_of(found, lambda _: None)  # the status names invalid objects
    operator, operator_missing = await check_operator_permissions(api, policies, given=account)
    checks = [check_definitions(await _served(api)), *check_status(status), *operator, check_user(missing, len(needed))]
    return doctor_document(checks, missing, operator_missing=operator_missing)


async def _served(api: Api) -> dict[str, bool]:
    """Return whether each kind of the default installation is served."""
    from trimtab.api.crds import DEFINITIONS
    from trimtab.kube.api import NotFound

    wanted = [each for each in DEFINITIONS if each.by_default]
    names: dict[str, set[str]] = {}
    for version in {each.api_version for each in wanted}:
        try:
            listed = await api.request("GET", f"/apis/{version}")
        except NotFound:
            listed = {}
        names[version] = {each.get("name", "") for each in listed.get("resources") or ()}
    return {each.name: each.plural in names[each.api_version] for each in wanted}


def _print(document: Document) -> None:
    from trimtab.cli.output import echo, table

    failed = [each for each in document["checks"] if each["result"] == "Failed"]
    verdict = "no problem was found" if document["healthy"] else f"problems found: {len(failed)}"
    echo(f"{click.style('trimtab', bold=True)}: {verdict}.")
    echo()
    rows = [[each["result"], each["subject"], each["reason"], each["message"]] for each in document["checks"]]
    echo(table(["RESULT", "SUBJECT", "REASON", "MESSAGE"], rows))
    for each in failed:
        if each["remedy"]:
            echo(f"\n{each['subject']}: {each['remedy']}")
    if document["missingRules"]:
        import msgspec

        echo("\nRules of a ClusterRole with what you lack:")
        echo(msgspec.yaml.encode(document["missingRules"]).decode().rstrip())
