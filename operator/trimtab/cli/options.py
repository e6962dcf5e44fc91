"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from trimtab.cli.names import ObjectType
    from trimtab.cluster.usage.prometheus import PrometheusSettings


F = TypeVar("F", bound=Callable[..., Any])

HELP_OPTIONS: Final = ("-h", "--help")
"""Names of the help option.

A command that is also invoked without the root command specifies them itself: Click caches the option of a command with
the names of the context in which it is invoked first.
"""

STDIN: Final = "-"


def parse_time(value: str) -> int:
    """Parse an RFC 3339 time to whole seconds since the epoch, which is the precision of plans.

    Raises:
        click.BadParameter: the value is not a time or has no time zone. The local time zone is never assumed.
    """
    try:
        parsed = datetime.fromisoformat(value)
        if parsed.tzinfo is not None:
            return int(parsed.astimezone(UTC).timestamp() // 1)
    except (ValueError, OverflowError):  # OverflowError: the time zone moves the time before year 1 or after year 9999
        pass
    raise click.BadParameter(f"{value!r} is not a time with date and zone, as in 2026-11-20T12:00:00Z")


def completed(what: str | ObjectType) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return the completion of a name, see :func:`trimtab.cli.completion.complete_names`."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from trimtab.cli.completion import complete_names

        del param
        return complete_names(what, ctx, incomplete)

    return complete


def cluster_options(command: F) -> F:
    """Add the options for the source of the snapshot, such as ``--cluster``, and ``--skip-invalid``."""
    command = skip_invalid_option(command)
    command = connection_options(command)
    return click.option(
        "--cluster",
        metavar="FILE|DIR|-",
        help="Output of `kubectl get nodes,pods,… -A -o json|yaml` or of `trimtab snapshot`, a folder or tar archive "
        "of such files, or a folder of `oc adm must-gather` or `oc adm inspect`. Default: the live cluster.",
    )(command)


def connection_options(command: F) -> F:
    """Add the options for the API server to use: ``--kubeconfig`` and ``--context``."""
    command = click.option(
        "--context",
        metavar="NAME",
        help="Context of the kubeconfig. Default: its current context.",
        shell_complete=completed("contexts"),
    )(command)
    return click.option(
        "--kubeconfig",
        metavar="FILE",
        help="Kubeconfig file. Default: $KUBECONFIG, then ~/.kube/config, then the pod's service account.",
    )(command)


def skip_invalid_option(command: F) -> F:
    """Add the option ``--skip-invalid``, with which a command skips invalid objects and continues."""
    return click.option(
        "--skip-invalid", is_flag=True, help="Skip invalid objects and report them on stderr, instead of failing."
    )(command)


def namespace_option(command: F) -> F:
    """Add the option ``-n/--namespace``, see :func:`trimtab.cli.names.parse_object_name`."""
    return click.option(
        "-n",
        "--namespace",
        metavar="NAMESPACE",
        shell_complete=completed("namespaces"),
        help="Namespace of the object, unless the name contains it. Default: that of the kubeconfig's context; default "
        "with --cluster.",
    )(command)


def output_option(*forms: str) -> Callable[[F], F]:
    """Add the option ``-o/--output`` with the given formats. The first one is the default."""
    return click.option(
        "-o", "--output", "form", type=click.Choice(forms), default=forms[0], show_default=True, help="Output format."
    )


def scoring_option(consequence: str) -> Callable[[F], F]:
    """Add the option ``--scoring`` for the scheduler's scoring strategy, which cannot be read from the cluster.

    ``consequence`` is the part of the help that says how the command uses the strategy.
    """
    return click.option(
        "--scoring",
        type=click.Choice(["LeastAllocated", "MostAllocated"]),
        help="The scoringStrategy that kube-scheduler's NodeResourcesFit plugin is configured with; it cannot be read "
        f"from the cluster. {consequence} Default: not checked.",
    )


def prometheus_options(command: F) -> F:
    """Add the options for the Prometheus server: ``--prometheus-url``, ``-token-file`` and ``-ca-file``."""
    command = click.option(
        "--prometheus-ca-file",
        metavar="FILE",
        default="",
        help="CA certificates (PEM) to verify the Prometheus server with. Default: the system's CA certificates.",
    )(command)
    command = click.option(
        "--prometheus-token-file",
        metavar="FILE",
        default="",
        help="File with a bearer token for Prometheus, e.g. a service account token; reread when it changes.",
    )(command)
    return click.option(
        "--prometheus-url",
        metavar="URL",
        default="",
        help="Prometheus, or a server with the same query API, for policies whose metricsUtilization has a query.",
    )(command)


def prometheus_settings(url: str, token_file: str, ca_file: str) -> PrometheusSettings | None:
    """Return the settings from the three options, or ``None`` without a URL.

    Raises:
        click.UsageError: a token or CA file is given without a URL.
    """
    if not url:
        if token_file or ca_file:
            raise click.UsageError("--prometheus-token-file and --prometheus-ca-file need --prometheus-url")
        return None
    from trimtab.cluster.usage.prometheus import PrometheusSettings

    return PrometheusSettings(url=url, token_file=token_file, ca_file=ca_file)


def check_connection(cluster: str | None, kubeconfig: str | None, context: str | None) -> None:
    """Reject options for a live cluster together with ``--cluster``.

    Raises:
        click.UsageError: ``--cluster`` and options for a live cluster are both given.
    """
    if cluster is not None and (kubeconfig or context):
        raise click.UsageError(
            "--cluster reads files, --kubeconfig and --context select a live cluster: they cannot be combined"
        )


OPERATOR_NAMESPACE: Final = "trimtab-system"
"""The namespace into which the documentation installs the operator."""

operator_namespace_option: Final = click.option(
    "--operator-namespace",
    metavar="NAME",
    default=OPERATOR_NAMESPACE,
    show_default=True,
    help="Namespace of the operator, to which the rules of a PlacementAdmission do not apply.",
)
