"""``trimtab ui``: the cluster, the plan and what is in flight as a live page in the browser."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import webbrowser
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

import click

from trimtab.cli.errors import report_errors
from trimtab.cli.options import cluster_options, parse_time

if TYPE_CHECKING:
    from trimtab.cli.cluster_input import ClusterSource
    from trimtab.cli.ui.sources import Source


@click.command("ui")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on. Default: a free one.", metavar="PORT"
)
@click.option(
    "--open/--no-open",
    "opens",
    default=None,
    help="Whether to open the page in the browser. Default: yes on a terminal with a graphical session.",
)
@click.option("--now", metavar="RFC3339", type=parse_time, help="Time to plan for; only with --cluster.")
@cluster_options
def ui(
    *,
    port: int,
    opens: bool | None,
    now: int | None,
    cluster: str | None,
    kubeconfig: str | None,
    context: str | None,
    skip_invalid: bool,
) -> None:
    """Show the cluster as a live page in the browser.

    The page shows the nodes as a heat map, the pending pods with reasons, what the applied policies would do now, the
    actions in flight and the history. A click on a node or pod explains it.

    The page is served on 127.0.0.1 only, until the command is interrupted. It shows what the user of the kubeconfig may
    read, and changes nothing. The printed URL contains a token: everybody who knows it and can connect to this
    machine's loopback address can read the page.
    """
    from trimtab.cli.cluster_input import ClusterSource

    source = ClusterSource(cluster=cluster, kubeconfig=kubeconfig, context=context, skip_invalid=skip_invalid)
    source.check()
    if now is not None and cluster is None:
        raise click.UsageError("--now needs --cluster: a live page shows the present")
    opens = _graphical() if opens is None else opens
    with report_errors():
        if cluster is None:
            _serve_live(source, port=port, opens=opens)
        else:
            _serve_files(source, port=port, opens=opens, now=now)


def _graphical() -> bool:
    """Return whether a browser can probably be opened: never start a text browser in the terminal."""
    session = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.stdout.isatty() and bool(session)


def _serve_live(source: ClusterSource, *, port: int, opens: bool) -> None:
    from trimtab.cli.connection import connection_config
    from trimtab.cli.ui.sources import LiveSource
    from trimtab.kube.connection.transport import Transport

    config = connection_config(source.kubeconfig, context=source.context)  # may run an exec plugin, which blocks

    async def work() -> None:
        async with Transport(config) as api:
            await _serve(LiveSource(api, config.server), port=port, opens=opens)

    _run_until_interrupted(work)


def _serve_files(source: ClusterSource, *, port: int, opens: bool, now: int | None) -> None:
    from trimtab.cli.cluster_input import load_cluster_input, read_policy_set
    from trimtab.cli.ui.sources import FileSource

    policies = read_policy_set(source)
    loaded = load_cluster_input(source, policies, now=now, machines=True, stats=True, history=True)

    async def work() -> None:
        await _serve(FileSource(loaded), port=port, opens=opens)

    _run_until_interrupted(work)


async def _serve(source: Source, *, port: int, opens: bool) -> None:
    from trimtab.cli.ui.page import LivePage
    from trimtab.cli.ui.server import PageServer

    page = LivePage(source)
    server = PageServer(page, port=port)
    await server.start()
    try:
        click.echo(f"Serving {source.name} at {server.url}")
        click.echo("The URL contains a secret token. Press Ctrl+C to stop.", err=True)
        if opens:
            await asyncio.to_thread(webbrowser.open, server.one_time_url())
        await page.run()
    finally:
        await server.stop()


def _run_until_interrupted(work: Callable[[], Coroutine[None, None, None]]) -> None:
    import uvloop

    async def run() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(work(), name="serve the page")
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        try:
            await asyncio.wait({task})
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)  # uvloop leaves its handler behind, which ignores the signal
        if not task.cancelled():
            task.result()

    uvloop.run(run())
