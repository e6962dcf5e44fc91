"""Options that several commands share, each with its meaning in one place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from trimtab.cluster.prometheus import PrometheusSettings

F = TypeVar("F", bound=Callable[..., Any])

STDIN: Final = "-"


def moment(value: str) -> int:
    """Parse an RFC 3339 time to whole seconds since the epoch, as plans print whole seconds.

    Raises:
        click.BadParameter: it is no time, or has no zone: it is refused rather than read in the zone of this machine.
    """
    try:
        parsed = datetime.fromisoformat(value)
        if parsed.tzinfo is not None:
            return int(parsed.astimezone(UTC).timestamp() // 1)
    except (ValueError, OverflowError):  # the latter of a zone that makes it a time before year 1 or after 9999
        pass
    raise click.BadParameter(f"{value!r} is not a time with date and zone, as in 2026-11-20T12:00:00Z")


def cluster_options(command: F) -> F:
    """``--cluster``, ``--kubeconfig``, ``--context``, ``--skip-invalid``: where the picture of the cluster is from."""
    command = skip_invalid_option(command)
    command = connection_options(command)
    return click.option(
        "--cluster",
        metavar="FILE|DIR|-",
        help="What `kubectl get nodes,pods,… -A -o json|yaml` or `trimtab snapshot` wrote, or a folder of such files. "
        "Without it: the live cluster.",
    )(command)


def connection_options(command: F) -> F:
    """``--kubeconfig`` and ``--context``: which API server."""
    command = click.option("--context", metavar="NAME", help="Context of the kubeconfig (default: its current one).")(
        command
    )
    return click.option(
        "--kubeconfig",
        metavar="FILE",
        help="Default: $KUBECONFIG, else ~/.kube/config, else the pod's service account.",
    )(command)


def skip_invalid_option(command: F) -> F:
    """``--skip-invalid``: go on without objects that cannot be used."""
    return click.option(
        "--skip-invalid", is_flag=True, help="Report objects that cannot be used on stderr and go on without them."
    )(command)


def output_option(*forms: str) -> Callable[[F], F]:
    """``-o/--output`` with these forms, the first one being the default."""
    return click.option(
        "-o", "--output", "form", type=click.Choice(forms), default=forms[0], show_default=True, help="Output format."
    )


def scoring_option(consequence: str) -> Callable[[F], F]:
    """``--scoring``: what nobody can read from a cluster, with what follows from it for the command."""
    return click.option(
        "--scoring",
        type=click.Choice(["LeastAllocated", "MostAllocated"]),
        help="How the cluster's scheduler scores nodes (scoringStrategy of NodeResourcesFit), which cannot be read "
        f"from the cluster: {consequence} Default: not known.",
    )


def prometheus_options(command: F) -> F:
    """``--prometheus-url``, ``-token-file`` and ``-ca-file``: whom the queries of policies are put to."""
    command = click.option(
        "--prometheus-ca-file",
        metavar="FILE",
        default="",
        help="Authorities to trust for it, PEM (default: the system's).",
    )(command)
    command = click.option(
        "--prometheus-token-file",
        metavar="FILE",
        default="",
        help="A bearer token for it, e.g. a service account's; read again as it is renewed.",
    )(command)
    return click.option(
        "--prometheus-url",
        metavar="URL",
        default="",
        help="Prometheus, or what answers as it does, for policies that judge by its queries (metricsUtilization).",
    )(command)


def prometheus_settings(url: str, token_file: str, ca_file: str) -> PrometheusSettings | None:
    """What the three say; ``None`` where nobody has said where Prometheus is.

    Raises:
        click.UsageError: a token or authorities are given for nobody.
    """
    if not url:
        if token_file or ca_file:
            raise click.UsageError("--prometheus-token-file and --prometheus-ca-file need --prometheus-url")
        return None
    from trimtab.cluster.prometheus import PrometheusSettings

    return PrometheusSettings(url=url, token_file=token_file, ca_file=ca_file)


def check_connection(cluster: str | None, kubeconfig: str | None, context: str | None) -> None:
    """Refuse options that contradict each other.

    Raises:
        click.UsageError: a live cluster was named besides ``--cluster``.
    """
    if cluster is not None and (kubeconfig or context):
        raise click.UsageError(
            "--cluster reads files; --kubeconfig and --context name a live cluster: give one or none"
        )
