"""``trimtab run``: runs the operator."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from trimtab.cli.errors import CommandError, report_errors
from trimtab.cli.options import HELP_OPTIONS, prometheus_options, prometheus_settings, scoring_option
from trimtab.cli.run_options import (
    address,
    complexity_options,
    duration,
    eviction_options,
    external_options,
    inspection_options,
    kubelet_options,
    positive_duration,
    serving_options,
    webhook_options,
)
from trimtab.kube.errors import InputError
from trimtab.runtime.settings import CONTROLLERS, DEFAULT_CONTROLLERS, Settings

if TYPE_CHECKING:
    from trimtab.autoscaling.external import ExternalSettings
    from trimtab.descheduling.policy_conflicts import Scoring
    from trimtab.disruption.limits import EvictionLimits
    from trimtab.kube.wire.limits import ComplexityLimits
    from trimtab.pressure.kubelet_client import KubeletClientSettings
    from trimtab.runtime.admission import AdmissionSettings
    from trimtab.runtime.http.server import Limits
    from trimtab.runtime.inspection.service import InspectionSettings
    from trimtab.runtime.metrics.server import MetricsSettings


def _controllers(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    unknown = sorted(set(names) - set(CONTROLLERS))
    if unknown or not names:
        message = f"unknown controller {', '.join(unknown)}" if unknown else "no controller given"
        raise click.BadParameter(f"{message}; available are {', '.join(CONTROLLERS)}")
    return names


def _optional_duration(context: click.Context, option: click.Parameter, text: str) -> float | None:
    if not text:
        return None
    seconds = duration(context, option, text)
    if seconds <= 0:
        raise click.BadParameter(f"{text!r} is not a positive duration")
    return seconds


@contextmanager
def _ending_at_once() -> Iterator[None]:
    """Exit cleanly on a SIGTERM in the first one or two seconds, before the event loop handles signals.

    Without a handler, the kernel would ignore a SIGTERM for the first process of a container.
    """

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.command("run", context_settings={"help_option_names": HELP_OPTIONS})
@click.option(
    "--controllers",
    default=",".join(DEFAULT_CONTROLLERS),
    show_default=True,
    callback=_controllers,
    help=f"Controllers to run, separated by commas: {', '.join(CONTROLLERS)}. The scheduler and pressure "
    f"(node-pressure "
    "eviction) run only if they are named.",
)
@webhook_options
@click.option(
    "--kubeconfig",
    default="",
    help="Kubeconfig file. Default: $KUBECONFIG, then ~/.kube/config, then the pod's service account.",
)
@click.option("--context", default="", help="Context of the kubeconfig. Default: its current context.")
@click.option(
    "--listen",
    default=":8080",
    show_default=True,
    callback=address,
    help="HOST:PORT to serve /healthz and /readyz at, and /metrics unless --metrics-listen is given. Without a host: "
    "all IPv4 and IPv6 addresses.",
)
@serving_options
@inspection_options
@click.option(
    "--leader-elect/--no-leader-elect", default=True, show_default=True, help="Act only while holding a Lease."
)
@click.option("--lease-name", default="trimtab", show_default=True, help="Name of the leader election Lease.")
@click.option(
    "--lease-namespace",
    default="",
    help="Namespace of the leader election Lease. Default: the namespace of the pod or of the context.",
)
@click.option(
    "--identity",
    default="",
    help="Holder identity in the Lease; must be unique, also across restarts. Default: host name and a random suffix.",
)
@scoring_option("The operator does not run policies that the scheduler would undo, and reports that in a condition.")
@prometheus_options
@eviction_options
@complexity_options
@external_options
@kubelet_options
@click.option(
    "--priority-expander-namespace",
    metavar="NAMESPACE",
    default="",
    help="Namespace of the ConfigMap for the expander Priority. Default: the operator's namespace, then the namespaces "
    "of the MachineAutoscalers.",
)
@click.option(
    "--autoscaler-compatible-metrics/--no-autoscaler-compatible-metrics",
    "compatible_metrics",
    default=False,
    show_default=True,
    help="Also export autoscaler metrics under cluster-autoscaler's names (cluster_autoscaler_...).",
)
@click.option(
    "--machine-mark-delay",
    "mark_delay",
    default="15s",
    show_default=True,
    callback=duration,
    help="Time between annotating machines for deletion and lowering the size of their node group, so that the machine "
    "controller has read the annotations before it chooses the machines to delete.",
)
@click.option(
    "--history-records",
    type=click.IntRange(0, 1000),
    default=40,
    show_default=True,
    help="Maximum number of HistoryRecords, each with up to 250 actions; older ones are deleted. 0 to keep no history.",
)
@click.option(
    "--history-max-age",
    default="168h",
    show_default=True,
    callback=positive_duration,
    help="Time after which actions are deleted from the history.",
)
@click.option(
    "--max-inactivity",
    default="10m",
    show_default=True,
    callback=positive_duration,
    help="Exit if a controller, a watch, the event loop of Kopf (the operator framework) or a status update makes no "
    "progress for this long, so that another replica takes over. Corresponds to the flag of cluster-autoscaler.",
)
@click.option(
    "--max-failing-time",
    default="15m",
    show_default=True,
    callback=positive_duration,
    help="Exit if every attempt of a controller, a watch, Kopf (the operator framework) or a status update fails "
    "for this "
    "long.",
)
@click.option(
    "--shutdown-timeout",
    default="55s",
    show_default=True,
    callback=positive_duration,
    help="Maximum time from SIGTERM to the exit; must be shorter than the pod's terminationGracePeriodSeconds.",
)
@click.option(
    "--plan-deadline",
    metavar="DURATION",
    default="",
    callback=_optional_duration,
    help="Maximum duration of one plan, shorter than --max-inactivity; pods that are not evaluated by then are skipped "
    "(PlanDeadlineExceeded). Default: 30s for the autoscaler; for the descheduler half of the policy's interval, "
    "between 30s and 2m.",
)
@click.option(
    "--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True, help="Format of log lines."
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Minimum level of log lines.",
)
def run(
    *,
    admission: AdmissionSettings | None,
    controllers: tuple[str, ...],
    kubeconfig: str,
    context: str,
    listen: tuple[str, int],
    http_limits: Limits,
    metrics: MetricsSettings | None,
    inspection: InspectionSettings | None,
    leader_elect: bool,
    lease_name: str,
    lease_namespace: str,
    identity: str,
    scoring: Scoring | None,
    prometheus_url: str,
    prometheus_token_file: str,
    prometheus_ca_file: str,
    eviction_limits: EvictionLimits | None,
    complexity: ComplexityLimits,
    external: ExternalSettings | None,
    kubelets: KubeletClientSettings,
    priority_expander_namespace: str,
    compatible_metrics: bool,
    mark_delay: float,
    history_records: int,
    history_max_age: float,
    max_inactivity: float,
    max_failing_time: float,
    shutdown_timeout: float,
    plan_deadline: float | None,
    log_format: str,
    log_level: str,
) -> None:
    """Run the operator until SIGTERM or Ctrl-C.

    It runs the descheduler, the cluster autoscaler and the taint manager. The scheduler runs only if --controllers
    names it. With --role admission it runs the webhooks of the PlacementAdmission instead; every replica answers, so
    there is no leader.
    """
    if plan_deadline is not None and plan_deadline >= max_inactivity:
        raise click.UsageError(
            f"--plan-deadline ({plan_deadline:g}s) must be shorter than --max-inactivity ({max_inactivity:g}s), "
            "because the process exits if a plan takes longer than that"
        )
    if admission is not None and admission.shutdown_delay >= shutdown_timeout:
        raise click.UsageError(
            f"--webhook-shutdown-delay ({admission.shutdown_delay:g}s) must be shorter than --shutdown-timeout "
            f"({shutdown_timeout:g}s), because the process exits then"
        )
    with _ending_at_once(), report_errors():
        from trimtab.runtime import logs, supervisor

        logs.configure_logging(form=log_format, level=log_level)
        settings = Settings(
            admission=admission,
            controllers=controllers,
            kubeconfig=kubeconfig,
            context=context,
            listen_host=listen[0],
            listen_port=listen[1],
            http_limits=http_limits,
            metrics=metrics,
            inspection=inspection,
            leader_elect=leader_elect and admission is None,
            lease_name=lease_name,
            lease_namespace=lease_namespace,
            identity=identity,
            scoring=scoring,
            prometheus=prometheus_settings(prometheus_url, prometheus_token_file, prometheus_ca_file),
            external=external,
            kubelets=kubelets,
            priority_expander_namespace=priority_expander_namespace,
            eviction_limits=eviction_limits,
            complexity=complexity,
            compatible_metrics=compatible_metrics,
            mark_delay=mark_delay,
            history_records=history_records,
            history_max_age=history_max_age,
            max_inactivity=max_inactivity,
            max_failing_time=max_failing_time,
            shutdown_timeout=shutdown_timeout,
            plan_deadline=plan_deadline,
        )
        try:
            supervisor.run(settings)
        except InputError:
            raise
        except OSError as error:
            raise CommandError(f"--listen {listen[0]}:{listen[1]}: {error.strerror or error}") from error
        except Exception:  # logged as one line of JSON, like all other log entries
            logging.getLogger(__name__).exception("Operator failed; exiting")
            raise SystemExit(1) from None
