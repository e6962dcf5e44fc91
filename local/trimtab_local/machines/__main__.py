"""``python -m trimtab_local.machines KUBECONFIG PORT``: runs the controller with ``/healthz`` on loopback."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

import uvloop
from aiohttp import web

from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab_local.machines.controller import Controller


async def serve(kubeconfig: str, port: int) -> None:
    """Run until SIGTERM."""
    ended = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, ended.set)
    async with Transport(load_config(kubeconfig)) as api:
        controller = Controller(api)

        async def healthy(_request: web.Request) -> web.Response:
            ready = controller.synced
            return web.Response(status=200 if ready else 503, text="ok\n" if ready else "reading\n")

        app = web.Application()
        app.router.add_get("/healthz", healthy)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        running = asyncio.create_task(controller.run())
        ending = asyncio.create_task(ended.wait())
        try:
            await asyncio.wait((running, ending), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()  # raises what ended it
        finally:
            for task in (running, ending):
                task.cancel()
            await asyncio.gather(running, ending, return_exceptions=True)
            await runner.cleanup()


def main() -> None:
    """Parse the arguments and run the controller."""
    kubeconfig, port = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(kubeconfig, int(port)))


if __name__ == "__main__":
    main()
