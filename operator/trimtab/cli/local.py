"""``trimtab local``: a real control plane on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trimtab.cli.errors import Reported, reported

if TYPE_CHECKING:
    from trimtab.local.cluster import LocalCluster
    from trimtab.local.components import Settings
    from trimtab.local.status import Status

_name = click.option("--name", default="default", show_default=True, metavar="X", help="Which cluster.")
_bin_dir = click.option(
    "--bin-dir",
    type=click.Path(path_type=Path),
    metavar="D",
    help="Take binaries from this directory where it has them.  [default: $KUBEBUILDER_ASSETS]",
)


@contextmanager
def _told() -> Iterator[None]:
    """What :func:`trimtab.cli.errors.reported` does, for failures of the local control plane as well."""
    from trimtab.local.errors import LocalError

    try:
        with reported():
            yield
    except LocalError as error:
        raise Reported(str(error)) from error
    except ModuleNotFoundError as error:
        # The operator's image does without what only this command needs.
        raise Reported(f"{error.name} is not installed; install it with: pip install 'trimtab[cli]'") from error


def _cluster(name: str, *, bin_dir: Path | None = None) -> LocalCluster:
    from trimtab.local.cluster import LocalCluster
    from trimtab.local.progress import for_terminal

    return LocalCluster(name, bin_dir=bin_dir, progress=for_terminal())


@click.group()
def local() -> None:
    """A real control plane on this machine: etcd, kube-apiserver, controllers, scheduler and kwok.

    The binaries are built from their Go modules at the first use, which takes some minutes, and kept under
    ${XDG_CACHE_HOME:-~/.cache}/trimtab. Clusters live under ${XDG_STATE_HOME:-~/.local/state}/trimtab/local.
    """


@local.command()
@_name
@_bin_dir
@click.option(
    "--nodes",
    type=click.IntRange(0, 20_000),
    metavar="N",
    help="Make sure that so many nodes exist.  [default: 3 in a new cluster]",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the kubeconfig there as well.",
)
@click.option("--for-load", is_flag=True, help="Set up for very many objects: no flow control, rarer node leases.")
@click.option(
    "--machines",
    is_flag=True,
    help="Serve OpenShift's MachineSets and Machines as well, and make nodes of them.",
)
@click.option(
    "--node-lifecycle/--no-node-lifecycle",
    default=None,
    help="Whether kube-controller-manager taints nodes that fail and ends pods on tainted nodes. Without, that is left "
    "to trimtab (TaintManager, mode Own): until it runs, new nodes stay tainted and get no pods.  [default: with, in a "
    "new cluster]",
)
@_told()
def up(
    name: str,
    bin_dir: Path | None,
    nodes: int | None,
    kubeconfig: Path | None,
    for_load: bool,
    machines: bool,
    node_lifecycle: bool | None,
) -> None:
    """Start a cluster, or repair one that is half dead."""
    cluster = _cluster(name, bin_dir=bin_dir)
    settings = _settings(cluster, for_load=for_load, machines=machines, node_lifecycle=node_lifecycle)
    cluster.up(settings, nodes=nodes, copy=kubeconfig)
    target = kubeconfig.absolute() if kubeconfig is not None else cluster.kubeconfig
    click.echo(f"Cluster {name} is up: {cluster.server}")
    click.echo(f"export KUBECONFIG={target}")


def _settings(
    cluster: LocalCluster, *, for_load: bool, machines: bool, node_lifecycle: bool | None = None
) -> Settings | None:
    """What ``up`` asks for: as it was, unless flags ask for more or for another node lifecycle."""
    from msgspec.structs import replace

    from trimtab.local.components import COMPONENTS, Settings
    from trimtab.local.versions import MACHINE_CONTROLLER

    if not (for_load or machines) and node_lifecycle is None:
        return None
    record = cluster.known()
    known = record.settings if record is not None else Settings()
    wanted = {*known.components, *([MACHINE_CONTROLLER] if machines else [])}
    components = tuple(component for component in COMPONENTS if component in wanted)
    return replace(
        known,
        for_load=known.for_load or for_load,
        components=components,
        node_lifecycle=known.node_lifecycle if node_lifecycle is None else node_lifecycle,
    )


@local.command()
@_name
@click.option("--keep-data", is_flag=True, help="Keep keys and objects: the next up continues with them.")
@_told()
def down(name: str, keep_data: bool) -> None:
    """Stop a cluster: exactly the processes that were started, and no others."""
    if not _cluster(name).down(keep_data=keep_data):
        click.echo(f"There is no cluster {name}.")


@local.command()
@_name
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Format."
)
@_told()
def status(name: str, output: str) -> None:
    """Show what runs. Exit status 1 unless all is healthy."""
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
@click.option("--raw", is_flag=True, help="Print the content instead of the path.")
@_told()
def kubeconfig(name: str, raw: bool) -> None:
    """Print where the admin's kubeconfig is."""
    path = _cluster(name).kubeconfig
    click.echo(path.read_text("utf-8") if raw else str(path), nl=not raw)


@local.command()
@click.argument("file", type=click.Path(path_type=Path))
@_name
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format.")
@_told()
def load(file: Path, name: str, output: str) -> None:
    """Fill a cluster with the nodes and workloads of a scenario FILE (see examples/local)."""
    import msgspec

    from trimtab.local.load import load as run
    from trimtab.local.progress import for_terminal
    from trimtab.local.scenario import read_scenario

    report = run(_cluster(name), read_scenario(file), progress=for_terminal())
    if output == "json":
        click.echo(msgspec.json.encode(report).decode())
    else:
        click.echo(f"{report.nodes:,} nodes and {report.pods:,} pods in {report.seconds:.0f} s")


@local.command()
@click.option("--helm", is_flag=True, help="Build helm as well.")
@_told()
def build(helm: bool) -> None:
    """Build the binaries without starting anything, and print where they are."""
    from trimtab.local.builder import Builder
    from trimtab.local.progress import for_terminal
    from trimtab.local.versions import DEFAULT_VERSION, HELM, SERVERS

    builder = Builder(version=DEFAULT_VERSION, progress=for_terminal())
    for path in builder.ensure([*SERVERS, *([HELM] if helm else [])]).values():
        click.echo(path)
    builder.stages()
