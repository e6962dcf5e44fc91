"""``trimtab plan``: shows what the policies would do to the cluster, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trimtab.cli.errors import CommandError, report_errors
from trimtab.cli.inspection_client import ask_operator, direct_option
from trimtab.cli.options import (
    OPERATOR_NAMESPACE,
    cluster_options,
    operator_namespace_option,
    output_option,
    parse_time,
    prometheus_options,
    prometheus_settings,
    scoring_option,
)
from trimtab.cli.output import SHOWN, show_plan

if TYPE_CHECKING:
    from trimtab.descheduling.policy_conflicts import Scoring
    from trimtab.inspection.cluster import ClusterInput, PolicySet


@click.command()
@cluster_options
@click.option(
    "--policy",
    "policies",
    metavar="FILE|-",
    multiple=True,
    help="File with DeschedulerPolicies, documents that `trimtab convert` reads, a ClusterAutoscaler, "
    "MachineAutoscalers, a TaintManager, SchedulerPolicies, NodePressurePolicies or a PlacementAdmission. A file may "
    "have several documents; may be given several times. Default: the policies in the cluster.",
)
@click.option("--now", metavar="RFC3339", type=parse_time, help="Time to plan for. Default: the current time.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help=f"Show all kept pods and nodes, not only the first {SHOWN} of each reason; in HTML: all rows.",
)
@click.option(
    "--as-group",
    "groups",
    metavar="GROUP",
    multiple=True,
    help="Group of the user who is assumed to create the objects, for the audit of a PlacementAdmission. May be given "
    "several times. Default: no group.",
)
@click.option(
    "--stats",
    is_flag=True,
    help="Read the stats of nodes from their kubelets, through the API server, for NodePressurePolicies; this needs "
    "permission to get nodes/proxy. Default: those that the operator has read, if its inspection API answers; "
    "otherwise only the memory, from metrics.k8s.io.",
)
@operator_namespace_option
@scoring_option("Policies that the scheduler would undo are refused.")
@prometheus_options
@direct_option
@output_option("table", "json", "yaml", "html")
def plan(
    *,
    cluster: str | None,
    kubeconfig: str | None,
    context: str | None,
    skip_invalid: bool,
    policies: tuple[str, ...],
    now: int | None,
    everything: bool,
    groups: tuple[str, ...],
    stats: bool,
    operator_namespace: str,
    scoring: Scoring | None,
    prometheus_url: str,
    prometheus_token_file: str,
    prometheus_ca_file: str,
    direct: bool,
    form: str,
) -> None:
    """Show what the policies would do to the cluster, and why, without changing anything.

    The plan shows what a cycle of a DeschedulerPolicy would do now if its mode were Act; mode, suspend, interval and
    schedule are ignored. Policies that would undo each other are refused; the operator does not run such policies
    either. For the same cluster, policies and --now, the JSON, YAML and HTML output is identical byte for byte.

    If a policy file includes the status (kubectl get -o yaml), the plan takes earlier ineffective evictions into
    account, like the operator.

    With a ClusterAutoscaler, the plan shows which node groups are scaled up for pending pods, why other pods stay
    pending, which unneeded nodes are removed, and why other nodes are not. Node groups are planned first: pending pods
    and the pods of removed nodes are placed before the descheduler moves pods.

    A node is removed only if it has been recorded as unneeded for unneededTime: in its annotation
    trimtab.dev/unneeded-since, in the status of the ClusterAutoscaler, or by its taint
    DeletionCandidateOfClusterAutoscaler.

    With a TaintManager, the plan shows when each pod on a node with NoExecute taints is evicted or deleted, because of
    which taint and toleration, or why it is kept. A taint without timeAdded and without trimtab's annotation counts as
    added now. In TaintAndEvict mode the plan also lists taints to add and remove, and failed nodes queued for
    tainting.

    With a SchedulerPolicy, the plan shows on which nodes the pending pods of that scheduler are bound, which pods are
    preempted for them, which pods stay pending, and which running pods the policy would place on other nodes. Pending
    pods are placed before nodes are added and before pods are moved.

    With a PlacementAdmission, the plan shows which existing objects its rules would refuse or change if an ordinary
    user, who is in no group except those of --as-group and has no permission to create pods/binding, created them now.
    The objects are workloads,
    by their pod template and with the number of their pods that have the same result, and pods without a controller.
    Existing objects are not changed. Objects in exempt namespaces that would be refused elsewhere are kept. Whether a
    user or a scheduler has set spec.nodeName of an existing pod is only known from its managedFields (kubectl get
    --show-managed-fields).

    With NodePressurePolicies, the plan shows the pod that is evicted from each node under pressure, the signals of all
    nodes, the distance to each threshold, and the eviction order of pods. If the operator's inspection API answers,
    the signals and their trends are those that the operator has read. Otherwise only the memory is known, from
    metrics.k8s.io, unless --stats is given. From files, the plan reads what kubelets return at /stats/summary, for
    example from `trimtab snapshot --stats`, or NodeMetrics and PodMetrics. Summaries of a node from several times show
    its trend. A soft threshold counts as met since the time in the node's annotation pressure.trimtab.dev/state,
    otherwise since now; then the first pod of the eviction order is kept with the reason SoftGracePeriod.

    The output format html is one self-contained page. It shows the node utilization before and after the plan, added
    and removed nodes, moved pods, and the pods and nodes that are kept, with reasons.
    """
    from trimtab.cli.cluster_input import ClusterSource, load_cluster_input, read_policy_set
    from trimtab.inspection.planning import joint_plan

    source = ClusterSource(cluster=cluster, kubeconfig=kubeconfig, context=context, skip_invalid=skip_invalid)
    source.check()
    prometheus = prometheus_settings(prometheus_url, prometheus_token_file, prometheus_ca_file)
    changed = operator_namespace != OPERATOR_NAMESPACE or groups or stats
    live = cluster is None and not (policies or now or scoring or prometheus or skip_invalid or direct or changed)
    with report_errors():
        document = None
        if live and form != "html":
            document = ask_operator("plans/current", kubeconfig=kubeconfig, context=context)
        if document is not None:
            _show(document, form, everything=everything)
            return
        # Policies first, because reading them is fast and may already fail.
        wanted = read_policy_set(source, policies, scoring=scoring, required=True)
        if form == "html" and wanted.schedulers:
            raise click.UsageError("-o html does not show what a SchedulerPolicy does")
        warn_of_defaults(wanted)
        loaded = load_cluster_input(
            source,
            wanted,
            now=now,
            stats=bool(wanted.pressure),
            kubelets=stats,
            prometheus=prometheus,
            objects=form == "html" or _needs_objects(wanted),
            audit_options={"groups": groups, "operator_namespace": operator_namespace},
        )
        if form == "html":
            print_html_report(loaded, everything=everything)
            return
        _show(joint_plan(loaded).document(), form, everything=everything)


def _show(document: dict[str, Any], form: str, *, everything: bool) -> None:
    from trimtab.cli.output import emit

    if form == "table":
        show_plan(document, everything=everything)
    else:
        emit(document, form)


def _needs_objects(policies: PolicySet) -> bool:
    """Return whether anything but the audit of a PlacementAdmission needs the cluster."""
    rest = (policies.descheduler, policies.schedulers, policies.pressure, policies.taint_manager)
    return policies.autoscaled or any(rest)


def warn_of_defaults(policies: PolicySet) -> None:
    """Warn on stderr that autoscaling is planned with defaults, if there is no ClusterAutoscaler."""
    if policies.autoscaled and policies.cluster_autoscaler is None:
        click.echo(
            "trimtab: warning: no ClusterAutoscaler given: planning with its defaults; "
            "in a cluster, the operator scales nothing without one",
            err=True,
        )


def print_html_report(cluster: ClusterInput, *, everything: bool) -> None:
    """Print a plan as an HTML page."""
    try:
        from trimtab.cli.report import page, report
    except ModuleNotFoundError as error:  # the operator's image does not contain Jinja
        raise CommandError(f"-o html needs {error.name}; install it with: pip install 'trimtab[cli]'") from error
    from trimtab.inspection.planning import joint_plan_and_measures

    made, measures = joint_plan_and_measures(cluster)
    policies = cluster.policies
    content = report(
        made,
        measures,
        cluster.snapshot,
        policies.descheduler,
        cluster=cluster.source,
        autoscaler=policies.autoscaling_inputs(now=cluster.now).spec if policies.autoscaled else None,
        taints=None if policies.taint_manager is None else policies.taint_manager.spec,
        admission=None if policies.admission is None else policies.admission.spec,
        pressure=policies.pressure,
    )
    click.echo(page(content, everything=everything).encode(), nl=False)  # bytes, because the page declares UTF-8
