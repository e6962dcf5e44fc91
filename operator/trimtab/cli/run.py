"""``trimtab run``: the operator."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from trimtab.cli.errors import Reported, reported
from trimtab.cli.external_options import external_options
from trimtab.cli.options import prometheus_options, prometheus_settings, scoring_option
from trimtab.kube.errors import InputError
from trimtab.runtime.settings import CONTROLLERS, Settings

if TYPE_CHECKING:
    from trimtab.autoscaling.external import ExternalSettings
    from trimtab.descheduling.policy_conflicts import Scoring


def _controllers(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    unknown = sorted(set(names) - set(CONTROLLERS))
    if unknown or not names:
        raise click.BadParameter(f"{', '.join(unknown) or 'nothing'}; there are {', '.join(CONTROLLERS)}")
    return names


def _address(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, int]:
    host, _, port = value.rpartition(":")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise click.BadParameter(f"{value!r} is no HOST:PORT; e.g. 127.0.0.1:8080, [::1]:8080 or :8080")
    return host.removeprefix("[").removesuffix("]"), int(port)


@contextmanager
def _ending_at_once() -> Iterator[None]:
    """End in good order on a SIGTERM that comes before the event loop takes signals over, a second or two after start.

    The first process of a container would not hear it: for that one the kernel knows no default.
    """

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.command("run")
@click.option(
    "--controllers",
    default=",".join(CONTROLLERS),
    show_default=True,
    callback=_controllers,
    help="Which controllers run, separated by commas.",
)
@click.option("--role", type=click.Choice(["controllers"]), default="controllers", show_default=True)
@click.option(
    "--kubeconfig", default="", help="A kubeconfig; else $KUBECONFIG, ~/.kube/config, or the service account."
)
@click.option("--context", default="", help="A context of the kubeconfig.")
@click.option(
    "--listen",
    default=":8080",
    show_default=True,
    callback=_address,
    help="HOST:PORT of /healthz, /readyz and /metrics; without a host all addresses, of IPv4 and IPv6.",
)
@click.option("--leader-elect/--no-leader-elect", default=True, show_default=True, help="Hold a Lease while acting.")
@click.option("--lease-name", default="trimtab", show_default=True)
@click.option("--lease-namespace", default="", help="Default: the namespace of the pod or of the context.")
@click.option(
    "--identity",
    default="",
    help="Who holds the Lease; unique, even over restarts. Default: host name and a random part.",
)
@scoring_option("policies that it would undo are held, and their conditions say so.")
@prometheus_options
@external_options
@click.option(
    "--autoscaler-compatible-metrics/--no-autoscaler-compatible-metrics",
    "compatible_metrics",
    default=False,
    show_default=True,
    help="Count what the autoscaler does by cluster-autoscaler's names (cluster_autoscaler_...) as well.",
)
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def run(
    *,
    controllers: tuple[str, ...],
    role: str,
    kubeconfig: str,
    context: str,
    listen: tuple[str, int],
    leader_elect: bool,
    lease_name: str,
    lease_namespace: str,
    identity: str,
    scoring: Scoring | None,
    prometheus_url: str,
    prometheus_token_file: str,
    prometheus_ca_file: str,
    external: ExternalSettings | None,
    compatible_metrics: bool,
    log_format: str,
    log_level: str,
) -> None:
    """Run the operator until it is told to stop (SIGTERM or Ctrl-C)."""
    del role  # one role so far; the flag is there so that manifests can already name it
    with _ending_at_once(), reported():
        from trimtab.runtime import app, logs

        logs.set_up(form=log_format, level=log_level)
        settings = Settings(
            controllers=controllers,
            kubeconfig=kubeconfig,
            context=context,
            listen_host=listen[0],
            listen_port=listen[1],
            leader_elect=leader_elect,
            lease_name=lease_name,
            lease_namespace=lease_namespace,
            identity=identity,
            scoring=scoring,
            prometheus=prometheus_settings(prometheus_url, prometheus_token_file, prometheus_ca_file),
            external=external,
            compatible_metrics=compatible_metrics,
        )
        try:
            app.run(settings)
        except InputError:
            raise
        except OSError as error:
            raise Reported(f"--listen {listen[0]}:{listen[1]}: {error.strerror or error}") from error
        except Exception:  # so that it stands in the log as all else does, on one line of JSON
            logging.getLogger(__name__).exception("the operator cannot go on")
            raise SystemExit(1) from None
