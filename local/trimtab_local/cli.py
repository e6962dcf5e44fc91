"""``trimtab local``: run a real control plane on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trimtab.cli.errors import CommandError, report_errors
from trimtab_local.versions import DEFAULT_VERSION, RELEASES

if TYPE_CHECKING:
    from trimtab_local.cluster import LocalCluster
    from trimtab_local.components import Settings
    from trimtab_local.supervisor import Status

_name = click.option("--name", default="default", show_default=True, metavar="X", help="Name of the cluster.")
_bin_dir = click.option(
    "--bin-dir",
    type=click.Path(path_type=Path),
    metavar="D",
    help="Use binaries in this directory if they exist.  [default: $KUBEBUILDER_ASSETS]",
)
_VERSIONS = click.Choice(list(RELEASES))


@contextmanager
def _report_errors() -> Iterator[None]:
    """Report errors like :func:`trimtab.cli.errors.report_errors`, including those of the local control plane."""
    from trimtab_local import LocalError

    try:
        with report_errors():
            yield
    except LocalError as error:
        raise CommandError(str(error)) from error


def _cluster(name: str, *, bin_dir: Path | None = None) -> LocalCluster:
    from trimtab_local.cluster import LocalCluster
    from trimtab_local.progress import for_terminal

    return LocalCluster(name, bin_dir=bin_dir, progress=for_terminal())


@click.group()
def local() -> None:
    """Run a real control plane on this machine: etcd, kube-apiserver, controllers, scheduler and kwok.

    The binaries are built from their Go modules on first use, which takes some minutes, and cached in
    ${XDG_CACHE_HOME:-~/.cache}/trimtab. Clusters live under ${XDG_STATE_HOME:-~/.local/state}/trimtab/local.
    """


@local.command()
@_name
@_bin_dir
@click.option(
    "--kubernetes-version",
    type=_VERSIONS,
    help="Kubernetes version of a new cluster. An existing cluster keeps its version.  "
    f"[default: {DEFAULT_VERSION}, in a new cluster]",
)
@click.option(
    "--nodes",
    type=click.IntRange(0, 20_000),
    metavar="N",
    help="Create nodes until the cluster has this number.  [default: 3 in a new cluster]",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the kubeconfig to this file.",
)
@click.option(
    "--for-load",
    is_flag=True,
    help="Configure for very many objects: no API priority and fairness, less frequent node Leases.",
)
@click.option(
    "--machines",
    is_flag=True,
    help="Also serve OpenShift's MachineSets and Machines, and create nodes for them.",
)
@click.option(
    "--node-lifecycle/--no-node-lifecycle",
    default=None,
    help="Whether kube-controller-manager taints failed nodes and evicts pods from tainted nodes. If not, trimtab must "
    "(TaintManager, mode TaintAndEvict): until it runs, new nodes stay tainted and get no pods.  [default: with, in "
    "a new cluster]",
)
@click.option(
    "--scheduler/--no-scheduler",
    default=None,
    help="Whether kube-scheduler runs. If not, no pod is scheduled until you run another scheduler, such as trimtab "
    "(SchedulerPolicy, schedulerName default-scheduler).  [default: with, in a new cluster]",
)
@click.option(
    "--kubelet-stats",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Also simulate the resource usage of nodes and their kubelets' /stats/summary, as the scenario FILE defines.",
)
@_report_errors()
def up(
    name: str,
    bin_dir: Path | None,
    kubernetes_version: str | None,
    nodes: int | None,
    kubeconfig: Path | None,
    for_load: bool,
    machines: bool,
    node_lifecycle: bool | None,
    scheduler: bool | None,
    kubelet_stats: Path | None,
) -> None:
    """Start a cluster, or restart its missing processes."""
    cluster = _cluster(name, bin_dir=bin_dir)
    settings = _settings(
        cluster,
        for_load=for_load,
        machines=machines,
        node_lifecycle=node_lifecycle,
        scheduler=scheduler,
        kubelet_stats=kubelet_stats,
        version=kubernetes_version,
    )
    cluster.up(settings, nodes=nodes, copy=kubeconfig)
    target = kubeconfig.absolute() if kubeconfig is not None else cluster.kubeconfig
    click.echo(f"Cluster {name} is up: {cluster.server}")
    click.echo(f"export KUBECONFIG={target}")


def _settings(
    cluster: LocalCluster,
    *,
    for_load: bool,
    machines: bool,
    node_lifecycle: bool | None = None,
    scheduler: bool | None = None,
    kubelet_stats: Path | None = None,
    version: str | None = None,
) -> Settings | None:
    """Return the settings of ``up``: those of the existing cluster, changed by the given options."""
    from msgspec.structs import replace

    from trimtab_local.components import COMPONENTS, Settings
    from trimtab_local.kubelets.scenario import read_scenario
    from trimtab_local.versions import KUBELET_STATS, MACHINE_CONTROLLER, SCHEDULER

    optional = (node_lifecycle, scheduler, kubelet_stats, version)
    if not (for_load or machines) and all(value is None for value in optional):
        return None
    if kubelet_stats is not None:
        read_scenario(kubelet_stats)  # a mistake is reported before anything starts
    record = cluster.known()
    known = record.settings if record is not None else Settings()
    wanted = {*known.components, *([MACHINE_CONTROLLER] if machines else []), *([SCHEDULER] if scheduler else [])}
    if kubelet_stats is not None:
        wanted.add(KUBELET_STATS)
    if scheduler is False:
        wanted.discard(SCHEDULER)
    components = tuple(component for component in COMPONENTS if component in wanted)
    return replace(
        known,
        version=known.version if version is None else version,
        for_load=known.for_load or for_load,
        components=components,
        node_lifecycle=known.node_lifecycle if node_lifecycle is None else node_lifecycle,
        stats_scenario=known.stats_scenario if kubelet_stats is None else str(kubelet_stats.absolute()),
    )


@local.command()
@_name
@click.option("--keep-data", is_flag=True, help="Keep the certificates and objects for the next `trimtab local up`.")
@_report_errors()
def down(name: str, keep_data: bool) -> None:
    """Stop the processes of a cluster and delete its data, unless --keep-data is given."""
    if not _cluster(name).down(keep_data=keep_data):
        click.echo(f"There is no cluster {name}.")


@local.command()
@_name
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Output format."
)
@_report_errors()
def status(name: str, output: str) -> None:
    """Show the processes of a cluster. Exit status 1 unless all are healthy."""
    import msgspec

    found = _cluster(name).status()
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        click.echo(_table(found))
    if not found.healthy:
        sys.exit(1)


def _table(found: Status) -> str:
    rows: list[tuple[Any, ...]] = [("COMPONENT", "STATE", "PID", "PORT", "MEMORY", "VERSION", "LOG")]
    rows += [
        (c.name, c.state, c.pid or "-", c.port, f"{c.memory_mib} MiB" if c.pid else "-", c.version or "-", c.log)
        for c in found.components
    ]
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    lines = [f"{found.name}: {found.server}", f"kubeconfig: {found.kubeconfig}", ""]
    lines += ["  ".join(f"{cell!s:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)


@local.command()
@_name
@click.option(
    "-f",
    "--values",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="File with values of the chart. May be repeated.",
)
@click.option("--set", "settings", multiple=True, metavar="K=V", help="A value of the chart. May be repeated.")
@click.option("--controllers", metavar="LIST", help="Controllers to run.  [default: that of trimtab run]")
@_report_errors()
def install(name: str, files: tuple[Path, ...], settings: tuple[str, ...], controllers: str | None) -> None:
    """Install the chart in a running cluster, with the operator as a process instead of a Deployment.

    This applies the chart's CRDs, service accounts, RBAC objects and admission policies, and starts `trimtab run` with
    the permissions of the chart's service account. Values of the chart's Deployment, such as its arguments, have no
    effect. A second install replaces the process.
    """
    from trimtab_local.install import install as apply_chart
    from trimtab_local.install import start_operator
    from trimtab_local.progress import for_terminal

    cluster = _cluster(name)
    apply_chart(cluster, *settings, files=files, progress=for_terminal())
    log = start_operator(cluster, *([f"--controllers={controllers}"] if controllers else []))
    click.echo(f"The operator runs in cluster {name}. Its log: {log}")


@local.command()
@_name
@_report_errors()
def uninstall(name: str) -> None:
    """Stop the operator that `trimtab local install` started. The CRDs, policies and RBAC objects stay."""
    stopped = _cluster(name).stop_operator()
    click.echo(f"The operator in cluster {name} was stopped." if stopped else f"No operator runs in cluster {name}.")


@local.command()
@_name
@click.option("--raw", is_flag=True, help="Print the content instead of the path.")
@_report_errors()
def kubeconfig(name: str, raw: bool) -> None:
    """Print the path of the admin kubeconfig."""
    path = _cluster(name).kubeconfig
    click.echo(path.read_text("utf-8") if raw else str(path), nl=not raw)


@local.command()
@click.argument("file", type=click.Path(path_type=Path))
@_name
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."
)
@_report_errors()
def load(file: Path, name: str, output: str) -> None:
    """Create the nodes and workloads of a scenario FILE (see examples/local) in a cluster."""
    import msgspec

    from trimtab_local.load import load as run
    from trimtab_local.progress import for_terminal
    from trimtab_local.scenario import read_scenario

    report = run(_cluster(name), read_scenario(file), progress=for_terminal())
    if output == "json":
        click.echo(msgspec.json.encode(report).decode())
    else:
        click.echo(f"{report.nodes:,} nodes and {report.pods:,} pods in {report.seconds:.0f} s")


@local.command()
@click.option("--helm", is_flag=True, help="Build helm as well.")
@click.option(
    "--kubernetes-version", type=_VERSIONS, default=DEFAULT_VERSION, show_default=True, help="Version to build."
)
@_report_errors()
def build(helm: bool, kubernetes_version: str) -> None:
    """Build the binaries without starting a cluster, and print their paths."""
    from trimtab_local.binaries import Builder
    from trimtab_local.progress import for_terminal
    from trimtab_local.versions import HELM, SERVERS

    builder = Builder(version=kubernetes_version, progress=for_terminal())
    for path in builder.ensure([*SERVERS, *([HELM] if helm else [])]).values():
        click.echo(path)
    builder.stages()
