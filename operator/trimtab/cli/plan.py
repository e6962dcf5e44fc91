"""``trimtab plan``: what would be done, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from trimtab.api.plan import SURGE
from trimtab.cli.errors import reported
from trimtab.cli.options import (
    STDIN,
    check_connection,
    cluster_options,
    moment,
    output_option,
    prometheus_options,
    prometheus_settings,
    scoring_option,
)
from trimtab.cli.plan_table import SHOWN, show

if TYPE_CHECKING:
    from trimtab.api.descheduler_policy import DeschedulerPolicy
    from trimtab.api.eviction_memory import Memory
    from trimtab.api.plan import Plan
    from trimtab.autoscaling.scale_up import Inputs
    from trimtab.cli.taint_managers import TaintManagers
    from trimtab.cluster.prometheus import PrometheusSettings
    from trimtab.cluster.rollouts import Rollouts
    from trimtab.cluster.snapshot import Snapshot
    from trimtab.cluster.usage import Usage
    from trimtab.descheduling.policy_conflicts import Scoring


@click.command()
@cluster_options
@click.option(
    "--policy",
    "policies",
    metavar="FILE|-",
    multiple=True,
    required=True,
    help="DeschedulerPolicy, ours or another descheduler's as `trimtab convert` takes it; ClusterAutoscaler and "
    "MachineAutoscalers; TaintManager; several documents a file; repeatable.",
)
@click.option("--now", metavar="RFC3339", type=moment, help="The time to plan for (default: the current time).")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help=f"Show all that is kept, not the first {SHOWN} of each reason; in html every row.",
)
@scoring_option("policies that it would undo are refused.")
@prometheus_options
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
    scoring: Scoring | None,
    prometheus_url: str,
    prometheus_token_file: str,
    prometheus_ca_file: str,
    form: str,
) -> None:
    """Show what the policies would do to the cluster, and why; nothing is changed.

    A policy's mode, suspend, interval and schedule do not matter here: the plan shows what a cycle would do that acted
    now. Policies that would undo each other are refused, as the operator holds them. The same cluster, policies and
    --now give the same bytes of JSON, YAML and HTML.

    A policy that is read with its status, as kubectl get -o yaml prints it, remembers which of its evictions did not
    help, as the operator does.

    With a ClusterAutoscaler the plan says which sets of machines grow for pods that find no place, why others stay
    pending, which nodes are removed because nobody needs them, and why each other node stays. Sets of machines come
    first: what waits, or leaves a node that goes, has its place before other pods are moved.

    A node is removed only if it is recorded as unneeded for as long as unneededTime: by its annotation
    trimtab.dev/unneeded-since, in the status of the ClusterAutoscaler, or by its taint
    DeletionCandidateOfClusterAutoscaler.

    With a TaintManager the plan says of each pod on a node with NoExecute taints when it goes, because of which taint
    and toleration, or why it stays. A taint without timeAdded and without a note of trimtab's counts from now on. In
    mode Own it says besides which taints nodes get and lose by their conditions, and which nodes that have failed wait.

    html is one page that needs nothing else: how full nodes are before and after, nodes that are added and that go, the
    moves, what is kept and why.
    """
    from trimtab.cli.autoscalers import Autoscalers
    from trimtab.cli.output import emit
    from trimtab.cli.policies import load_policies, refuse_conflicts
    from trimtab.cli.taint_managers import TaintManagers

    check_connection(cluster, kubeconfig, context)
    prometheus = prometheus_settings(prometheus_url, prometheus_token_file, prometheus_ca_file)
    if (*policies, cluster).count(STDIN) > 1:
        raise click.UsageError("standard input (-) can be read once: for --cluster or for one --policy")
    with reported():
        autoscalers, taints = Autoscalers(), TaintManagers()  # policies first: reading them is quick
        wanted = load_policies(policies, skip_invalid=skip_invalid, beside=(autoscalers, taints))
        refuse_conflicts(wanted, scoring)
        seen = observe(
            cluster,
            wanted,
            kubeconfig=kubeconfig,
            context=context,
            skip_invalid=skip_invalid,
            prometheus=prometheus,
            now=now,
            machines=bool(autoscalers),
        )
        inputs = autoscalers.inputs(now=seen.now) if autoscalers else None
        if form == "html":
            show_page(wanted, seen, inputs, taints, everything=everything)
            return
        document = make_whole(wanted, seen, inputs, taints).document()
        if form == "table":
            show(document, everything=everything)
        else:
            emit(document, form)


class Seen(NamedTuple):
    """What there is to plan on.

    Attributes:
        snapshot: the picture of the cluster.
        source: where it is from: a file, or the API server's URL.
        now: the time to plan for, in seconds since the epoch.
        memories: what the policies' statuses tell of earlier evictions, by the policies' names.
        usages: what nodes and pods really use, for the policies that judge by it.
        rollouts: Deployments and their ReplicaSets, where a policy asks for surges.
    """

    snapshot: Snapshot
    source: str
    now: float
    memories: Mapping[str, Memory]
    usages: Mapping[str, Usage]
    rollouts: Rollouts | None

    def told(self) -> dict[str, Any]:
        """All but the picture, as the planner takes it."""
        return {"now": self.now, "memories": self.memories, "usages": self.usages, "rollouts": self.rollouts}


def observe(
    cluster: str | None,
    policies: Sequence[DeschedulerPolicy],
    *,
    kubeconfig: str | None,
    context: str | None,
    skip_invalid: bool,
    prometheus: PrometheusSettings | None,
    now: int | None,
    machines: bool = False,
) -> Seen:
    """Read the cluster, and as much of real use, rollouts and memory as the policies ask for.

    Args:
        cluster: a file, a folder or ``-``; ``None`` for the live cluster.
        policies: to be planned for.
        kubeconfig: of the live cluster.
        context: of the kubeconfig.
        skip_invalid: report objects that cannot be used and go on.
        prometheus: where it is, for policies with a query; ``None`` where nobody has said.
        now: the time to plan for; ``None`` for when all has been read.
        machines: whether there is an autoscaler to plan for.

    Raises:
        InputError: a file, an object in it, or the kubeconfig cannot be used.
        Reported: the API server or Prometheus does not answer, or refuses.
    """
    from trimtab.api.strategies import KUBERNETES_METRICS, PROMETHEUS
    from trimtab.cli.sources import load_cluster
    from trimtab.kube.clock import SYSTEM_CLOCK

    names = [] if cluster is None else ["standard input" if cluster == STDIN else cluster]
    measured: list[Usage] = []
    rolled: list[Rollouts] = []
    judging = judged_by(policies, KUBERNETES_METRICS)
    snapshot = load_cluster(
        cluster,
        kubeconfig=kubeconfig,
        context=context,
        skip_invalid=skip_invalid,
        on_server=names.append,
        on_usage=measured.append if judging else None,
        on_rollouts=rolled.append if any(policy.spec.single_replica == SURGE for policy in policies) else None,
        machines=machines,
    )
    usages = {policy.name: usage for usage in measured for policy in judging}
    queried = judged_by(policies, PROMETHEUS)
    if queried:
        from trimtab.cli.queries import ask

        usages |= ask(queried, prometheus, now=now)
    when = float(int(SYSTEM_CLOCK.now()) if now is None else now)
    return Seen(
        snapshot=snapshot,
        source=names[0],
        now=when,
        memories=remembered(policies, snapshot, now=when),
        usages=usages,
        rollouts=rolled[0] if rolled else None,
    )


def judged_by(policies: Sequence[DeschedulerPolicy], source: str) -> list[DeschedulerPolicy]:
    """The policies that want real use from a source."""
    from trimtab.descheduling.burden import measured_by

    return [policy for policy in policies if (wanted := measured_by(policy)) and wanted.source == source]


def make_whole(
    policies: Sequence[DeschedulerPolicy], seen: Seen, autoscaling: Inputs | None, taints: TaintManagers
) -> Plan:
    """One plan of all there is, on one picture: what the autoscaler reserves is not promised to moved pods again."""
    from trimtab.descheduling.planner import plan as move

    made, _ = _beside(seen, policies, autoscaling, lambda: (move(seen.snapshot, policies, **seen.told()), None))
    return taints.complete(made, seen.snapshot, now=seen.now)


M = TypeVar("M")


def _beside(
    seen: Seen, policies: Sequence[DeschedulerPolicy], autoscaling: Inputs | None, move: Callable[[], tuple[Plan, M]]
) -> tuple[Plan, M | None]:
    """The plan of nodes, if any, and beside it that of policies, made by ``move``, with what else that returns."""
    from trimtab.api.plan import Plan
    from trimtab.autoscaling.memory import remembering
    from trimtab.autoscaling.planner import plan as scale
    from trimtab.autoscaling.planner import reserve

    if autoscaling is None:
        return move()
    scaled, promises = scale(seen.snapshot, remembering(seen.snapshot, autoscaling))
    if not policies:
        return scaled, None
    with seen.snapshot.fork():
        reserve(seen.snapshot, promises)
        moved, more = move()
    kept = (*scaled.kept, *moved.kept)
    return Plan(now=seen.now, actions=moved.actions, kept=kept, scaling=scaled.scaling), more


def remembered(policies: Sequence[DeschedulerPolicy], snapshot: Snapshot, *, now: float) -> dict[str, Memory]:
    """What the policies' statuses tell of earlier evictions, by the policies' names."""
    from trimtab.descheduling.memory.assess import assess
    from trimtab.descheduling.memory.routine import routine
    from trimtab.descheduling.memory.watching import recall

    found = {}
    for policy in policies:
        memory = recall(policy.status.memory, generation=policy.metadata.generation, asked="")
        spec = policy.spec
        found[policy.name] = assess(memory, snapshot, spec.cooldown, now=now, routine=routine(spec))
    return found


def show_page(
    policies: Sequence[DeschedulerPolicy],
    seen: Seen,
    autoscaling: Inputs | None,
    taints: TaintManagers,
    *,
    everything: bool,
) -> None:
    """Print a plan as a page."""
    from trimtab.cli.report import page, report
    from trimtab.descheduling.planner import plan_and_measure

    made, measures = _beside(
        seen, policies, autoscaling, lambda: plan_and_measure(seen.snapshot, policies, **seen.told())
    )
    made = taints.complete(made, seen.snapshot, now=seen.now)
    spec = None if autoscaling is None else autoscaling.spec
    manager = None if taints.manager is None else taints.manager.spec
    content = report(
        made, measures or (), seen.snapshot, policies, cluster=seen.source, autoscaler=spec, taints=manager
    )
    click.echo(page(content, everything=everything).encode(), nl=False)  # bytes: the page says that it is UTF-8
