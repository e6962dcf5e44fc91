"""The live cluster of a kubeconfig or service account, for commands that look at it once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from trimtab.cli.errors import Skipping, at_server
from trimtab.cluster.kinds import EVERYTHING, KINDS
from trimtab.cluster.load import RETRY, LoadFailed, load
from trimtab.cluster.metrics_api import read_usage
from trimtab.cluster.rollouts import Rollouts, read_rollouts
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage import Usage
from trimtab.kube.api import Api, ApiError, NotFound, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.connection.config import ServerConfig, load_config
from trimtab.kube.connection.transport import Transport
from trimtab.kube.resources import Resource

T = TypeVar("T")


def load_live(
    *,
    kubeconfig: str | None,
    context: str | None,
    skip_invalid: bool,
    on_server: Callable[[str], None] | None = None,
    on_usage: Callable[[Usage], None] | None = None,
    on_rollouts: Callable[[Rollouts], None] | None = None,
    machines: bool = False,
) -> Snapshot:
    """The picture of the live cluster.

    Args:
        kubeconfig: where the cluster is told; ``None`` to look where kubectl does, then for a service account.
        context: of the kubeconfig; ``None`` for its current one.
        skip_invalid: report objects that cannot be used and go on.
        on_server: told the API server's URL, once it is known.
        on_usage: told what nodes and pods really use, as metrics.k8s.io says; without it nobody is asked.
        on_rollouts: told the Deployments; likewise.
        machines: whether to read what autoscalers read beside: machines, what makes them, and DaemonSets.

    Raises:
        InputError: the kubeconfig cannot be used.
        Reported: the API server does not answer, or refuses; names server, configuration and what was asked.
    """
    skipping = Skipping() if skip_invalid else None

    async def work(api: Api) -> Snapshot:
        kinds = EVERYTHING if machines else KINDS
        snapshot = await load(api, kinds=kinds, on_invalid=skipping, on_absent=warn_absent)
        if on_usage is not None:
            on_usage(await read_usage(api, now=SYSTEM_CLOCK.now()))
        if on_rollouts is not None:
            on_rollouts(await read_rollouts(api))
        return snapshot

    return with_api(
        work,
        kubeconfig=kubeconfig,
        context=context,
        on_server=on_server,
    )


def warn_absent(resource: Resource, error: ApiError) -> None:
    """Say on stderr that a kind is missed: the API server does not know it, or does not show it to this user."""
    why = "is too old to know" if isinstance(error, NotFound) else "does not let you read"
    click.echo(f"trimtab: warning: the API server {why} {resource.name}: taken as none", err=True)


def with_api(
    work: Callable[[Api], Awaitable[T]],
    *,
    kubeconfig: str | None,
    context: str | None,
    on_server: Callable[[str], None] | None = None,
) -> T:
    """Connect, do the work, disconnect.

    Raises:
        InputError: the kubeconfig cannot be used.
        Reported: the API server does not answer, or refuses.
    """
    config = load_config(kubeconfig, context=context)  # may run an exec plugin: before the loop
    if on_server is not None:
        on_server(config.server)
    import uvloop  # a sixth faster on the hundreds of megabytes of a large cluster

    return uvloop.run(_within(config, work))


async def _within(config: ServerConfig, work: Callable[[Api], Awaitable[T]]) -> T:
    async with Transport(config, retries=RETRY) as api:
        try:
            return await work(api)
        except LoadFailed as error:
            raise at_server(error.cause, source=config.source, action=error.action) from error
        except (ApiError, Unreachable) as error:
            raise at_server(error, source=config.source) from error
