"""``python -m trimtab_local.kubelets KUBECONFIG KEYS PORT [SCENARIO]``: serves the stats of all nodes.

``http://127.0.0.1:PORT`` has ``/healthz``, and ``/kills`` with the pods that the simulated kubelets killed, as JSON.
The stats are served at the same port of the nodes' addresses.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path

import msgspec
import uvloop
from aiohttp import web

from trimtab.controller.loop import end_tasks
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab_local.certificates import Keys
from trimtab_local.kubelets.controller import Controller, ScenarioFile
from trimtab_local.kubelets.server import Reviewer, Server


async def serve(kubeconfig: str, keys: Path, port: int, scenario: Path | None) -> None:
    """Run until SIGTERM.

    Raises:
        InputError: the scenario is invalid.
    """
    ended = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, ended.set)
    async with Transport(load_config(kubeconfig)) as api:
        server = Server(Reviewer(api), Keys(directory=keys), port)
        controller = Controller(api, server, ScenarioFile(scenario), port=port)

        async def healthy(_request: web.Request) -> web.Response:
            ready = controller.synced
            return web.Response(status=200 if ready else 503, text="ok\n" if ready else "reading\n")

        async def kills(_request: web.Request) -> web.Response:
            return web.Response(body=msgspec.json.encode(controller.kills), content_type="application/json")

        app = web.Application()
        app.router.add_get("/healthz", healthy)
        app.router.add_get("/kills", kills)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await server.start()
        running = asyncio.create_task(controller.run())
        ending = asyncio.create_task(ended.wait())
        try:
            await asyncio.wait((running, ending), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()  # raises what ended it
        finally:
            await end_tasks((running, ending))
            await server.stop()
            await runner.cleanup()


def main() -> None:
    """Parse the arguments and run the server."""
    kubeconfig, keys, port, *scenario = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(kubeconfig, Path(keys), int(port), Path(scenario[0]) if scenario else None))


if __name__ == "__main__":
    main()
