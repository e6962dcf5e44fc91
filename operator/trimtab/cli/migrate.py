"""``trimtab migrate``: prepares the migration from other programs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from trimtab.cli.errors import report_errors
from trimtab.cli.options import STDIN, cluster_options, output_option, parse_time

if TYPE_CHECKING:
    from trimtab.inspection.migration import Document
    from trimtab.kube.api import Api
    from trimtab.kube.resources import Resource
    from trimtab.kube.wire.identity import ObjectIdentity

KINDS: Final = frozenset(
    {
        "ConfigMap",
        "CronJob",
        "DaemonSet",
        "Deployment",
        "Event",
        "KubeDescheduler",
        "MachineDeployment",
        "MachinePool",
        "MachineSet",
        "NodePool",
        "Pod",
        "StatefulSet",
    }
)
"""The kinds in files that the report needs."""

SYSTEM_NAMESPACES: Final = ("kube-system", "openshift-kube-controller-manager")
"""Namespaces in which kube-controller-manager runs as a static pod."""


@click.group()
def migrate() -> None:
    """Prepare the migration from other programs."""


@migrate.command()
@cluster_options
@click.option("--now", metavar="RFC3339", type=parse_time, help="Time to plan for. Default: the current time.")
@output_option("table", "json", "yaml")
def check(
    *, cluster: str | None, kubeconfig: str | None, context: str | None, skip_invalid: bool, now: int | None, form: str
) -> None:
    """Show which programs do jobs that trimtab can do, and the steps of a migration.

    The command finds descheduler, cluster-autoscaler, karpenter, OpenShift's operators for both, and the taint
    controllers of kube-controller-manager (if its pod shows the flags). For each job it shows which program does it,
    and whether two programs do it. It converts the settings that it finds, like `trimtab convert`, and plans with them
    without changing anything. The plan is compared with the events of the last 24 hours: evictions by namespace,
    removed nodes, and pods that triggered a scale-up.

    From files, the command also needs Deployments, CronJobs, ConfigMaps and Events: `kubectl get
    nodes,pods,deployments,cronjobs,configmaps,events -A -o yaml`. `oc adm must-gather` saves them.
    """
    from trimtab.cli.cluster_input import ClusterSource, read_policy_set
    from trimtab.cli.output import emit
    from trimtab.cli.sources import load_cluster
    from trimtab.inspection.cluster import ClusterInput
    from trimtab.inspection.migration import migration_report
    from trimtab.kube.clock import SYSTEM_CLOCK

    source = ClusterSource(cluster=cluster, kubeconfig=kubeconfig, context=context, skip_invalid=skip_invalid)
    source.check()
    manifests: list[Mapping[str, Any]] = []

    def observe(identity: ObjectIdentity, content: msgspec.Raw | Mapping[str, Any]) -> bool:
        if identity.kind not in KINDS:
            return False
        decoded = msgspec.json.decode(content) if isinstance(content, msgspec.Raw) else content
        manifests.append({**decoded, "kind": identity.kind})
        return bool(identity.kind != "Pod")

    with report_errors():
        wanted = read_policy_set(source)
        snapshot = load_cluster(
            cluster,
            kubeconfig=kubeconfig,
            context=context,
            skip_invalid=skip_invalid,
            machines=True,
            on_object=observe,
        )
        if cluster is None:
            manifests += _read_live(source.kubeconfig, source.context)
        when = float(int(SYSTEM_CLOCK.now()) if now is None else now)
        name = "standard input" if cluster == STDIN else cluster or ""
        document = migration_report(ClusterInput(snapshot=snapshot, now=when, source=name, policies=wanted), manifests)
        emit(document, form) if form != "table" else _print(document)


def _read_live(kubeconfig: str | None, context: str | None) -> list[Mapping[str, Any]]:
    from trimtab.cli.live import with_api

    return with_api(read_manifests, kubeconfig=kubeconfig, context=context)


async def read_manifests(api: Api) -> list[Mapping[str, Any]]:
    """Return the objects that the report needs from a live cluster. Kinds that the user may not list are empty.

    Raises:
        LoadFailed: a kind could not be listed.
    """
    from trimtab.cli.cluster_policies import print_warning
    from trimtab.inspection.live import list_manifests
    from trimtab.kube.api import Forbidden
    from trimtab.kube.printable import printable
    from trimtab.kube.resources import (
        CLUSTER_MACHINE_SETS,
        CONFIG_MAPS,
        CRON_JOBS,
        DAEMON_SETS,
        DEPLOYMENTS,
        EVENTS,
        MACHINE_DEPLOYMENTS,
        MACHINE_POOLS,
        MACHINE_SETS,
        STATEFUL_SETS,
        Resource,
    )

    def forbidden(resource: Resource, error: Forbidden) -> None:
        print_warning(f"{resource.name} is treated as empty: {printable(str(error))}")

    kinds = (
        DEPLOYMENTS,
        STATEFUL_SETS,
        DAEMON_SETS,
        CRON_JOBS,
        CONFIG_MAPS,
        EVENTS,
        MACHINE_SETS,
        MACHINE_DEPLOYMENTS,
        CLUSTER_MACHINE_SETS,
        MACHINE_POOLS,
        Resource("operator.openshift.io", "v1", "kubedeschedulers", "KubeDescheduler"),
        Resource("karpenter.sh", "v1", "nodepools", "NodePool", namespaced=False),
    )
    found: list[Mapping[str, Any]] = list(await list_manifests(api, kinds, on_forbidden=forbidden))
    for pods in await asyncio.gather(*(_system_pods(api, namespace) for namespace in SYSTEM_NAMESPACES)):
        found += pods
    return found


async def _system_pods(api: Api, namespace: str) -> list[Mapping[str, Any]]:
    from trimtab.kube.api import Forbidden, NotFound
    from trimtab.kube.resources import PODS
    from trimtab.kube.verbs import list_objects

    try:
        listed = await list_objects(api, PODS, namespace=namespace)
    except (Forbidden, NotFound):
        return []
    return [{**item, "apiVersion": "v1", "kind": "Pod"} for item in listed.items]


def _print(document: Document) -> None:
    from trimtab.cli.inspections import show_list, show_section
    from trimtab.cli.output import echo

    echo(f"{document['message'][0].upper()}{document['message'][1:]}.")
    rows = [
        [
            each["program"],
            each["object"],
            ", ".join(each["jobs"]),
            "yes" if each["active"] else "no",
            "yes" if each["converted"] else "no",
        ]
        for each in document["programs"]
    ]
    show_section("Programs", ["PROGRAM", "OBJECT", "JOBS", "ACTIVE", "CONVERTED"], rows, everything=True)
    rows = [
        [
            each["job"],
            ", ".join(each["owners"]) or "(none)",
            f"{each['trimtab']['kind']} ({each['trimtab']['mode']})" if each["trimtab"] else "(none)",
            "yes" if each["conflict"] else "no",
        ]
        for each in document["jobs"]
    ]
    show_section("Jobs", ["JOB", "OTHER PROGRAMS", "TRIMTAB", "CONFLICT"], rows, everything=True)
    show_list(
        "Differences", [f"{each['object']}: {text}" for each in document["programs"] for text in each["warnings"]]
    )
    show_list("Not converted", document["problems"])
    rows = [
        [each["action"], str(each["observed"]), str(each["planned"]), ", ".join(each["both"]) or "(none)"]
        for each in document["comparison"]
    ]
    show_section(
        "Events of 24 hours, and a plan for now", ["ACTION", "EVENTS", "PLANNED", "BOTH"], rows, everything=True
    )
    rows = [[str(each["step"]), each["text"], each["command"]] for each in document["steps"]]
    show_section("Steps", ["STEP", "WHAT", "COMMAND"], rows, everything=True)
