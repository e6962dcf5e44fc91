"""The role of the webhooks: what it loads, and its checks before it serves."""

from __future__ import annotations

import gc
import subprocess
import sys
from contextlib import AsyncExitStack

from prometheus_client import CollectorRegistry

from trimtab.kube.connection.config import ServerConfig
from trimtab.runtime.admission import AdmissionApp, AdmissionSettings
from trimtab.runtime.http.certificate import context_from_pem
from trimtab.runtime.metrics.process import RuntimeMetrics
from trimtab.runtime.settings import Settings

HEAVY = ("kopf", "kubernetes", "numpy", "grpc")


def test_webhooks_start_without_the_libraries_of_the_controllers() -> None:
    code = (
        "import sys, trimtab.cli.run, trimtab.runtime.supervisor, trimtab.runtime.admission\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def admission_app() -> AdmissionApp:
    registry = CollectorRegistry()
    return AdmissionApp(
        Settings(admission=AdmissionSettings(shutdown_delay=0.0)),
        ServerConfig(server="http://127.0.0.1:1"),
        identity="x",
        registry=registry,
        metrics=RuntimeMetrics(registry),
        leading=lambda: True,
    )


async def test_app_is_not_ready_before_it_serves_and_after_it_is_asked_to_stop() -> None:
    app = admission_app()
    problems = {name: check() for name, check in app.ready.items()}
    assert problems == {"shutdown": None, "watches": "starting", "policy": None, "webhooks": "starting"}
    app.stop()
    assert app.ready["shutdown"]() == "shutting down"


async def test_loaded_modules_are_exempt_from_garbage_collections_when_requests_arrive(monkeypatch) -> None:
    app = admission_app()
    monkeypatch.setattr(app, "_can_serve", lambda: True)
    objects: list[int] = []

    class Server:
        port = 9443

        async def start(self) -> None:
            objects.append(len(gc.get_objects()))
            app.stop()

        async def stop(self) -> None: ...

        def drain(self) -> None: ...

    try:
        async with AsyncExitStack() as stack:
            await app._serve(stack, Server(), [])
    finally:
        gc.unfreeze()
    assert objects[0] < 1000


def test_tls_context_is_made_from_pem() -> None:
    from trimtab.admission.certificates import Lifetimes, next_certificates

    made = next_certificates(
        None, registered=(), trusted_for=lambda _: -1.0, names=("localhost",), now=1.8e9, lifetimes=Lifetimes()
    )
    assert made is not None
    assert context_from_pem(made.certificate, made.key).get_ca_certs() == []
