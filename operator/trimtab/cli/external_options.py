"""Options of ``trimtab run`` that name who makes nodes beside machine APIs, and who chooses among groups."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from trimtab.autoscaling.external import ExternalSettings, GrpcEndpoint

_PROVIDER: Final = "cloud-provider-grpc"
_EXPANDER: Final = "expander-grpc"
_FILES: Final = ("ca-file", "cert-file", "key-file")


def external_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--cloud-provider-grpc-…``, ``--expander-grpc-…`` and ``--kwok-templates-namespace``, as one parameter.

    The command gets ``external``: an :class:`~trimtab.autoscaling.external.ExternalSettings`, or ``None`` where none of
    the options is given.
    """

    @wraps(command)
    def with_settings(**values: Any) -> Any:
        ours = {name: values.pop(name) for name in [key for key in values if key in _NAMES]}
        return command(external=_settings(ours), **values)

    for decorate in reversed(_OPTIONS):
        with_settings = decorate(with_settings)
    return with_settings


def _option(name: str, metavar: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(f"--{name}", metavar=metavar, default="", help=text)


_OPTIONS: Final = (
    _option(
        f"{_PROVIDER}-address",
        "HOST:PORT",
        "A provider of cluster-autoscaler's externalgrpc, whose groups of nodes are scaled beside those of machine "
        "APIs.",
    ),
    _option(f"{_PROVIDER}-ca-file", "FILE", "Authorities to trust for it, PEM; files are read again as they change."),
    _option(f"{_PROVIDER}-cert-file", "FILE", "Our certificate to show there, PEM."),
    _option(f"{_PROVIDER}-key-file", "FILE", "Its key, PEM. Without any file the connection is not encrypted."),
    _option(
        f"{_EXPANDER}-address", "HOST:PORT", "Who is asked by the expander Grpc: a server of cluster-autoscaler's API."
    ),
    _option(f"{_EXPANDER}-ca-file", "FILE", "Authorities to trust for it, PEM."),
    _option(f"{_EXPANDER}-cert-file", "FILE", "Our certificate to show there, PEM."),
    _option(f"{_EXPANDER}-key-file", "FILE", "Its key, PEM."),
    _option(
        "kwok-templates-namespace",
        "NAMESPACE",
        "Try autoscaling with nodes that nobody runs: make groups of kwok's node templates, which the ConfigMaps "
        "kwok-provider-config and kwok-provider-templates there hold.",
    ),
)

_NAMES: Final = frozenset(
    name.replace("-", "_")
    for name in (
        *(f"{prefix}-{each}" for prefix in (_PROVIDER, _EXPANDER) for each in ("address", *_FILES)),
        "kwok-templates-namespace",
    )
)


def _settings(values: dict[str, str]) -> ExternalSettings | None:
    provider, expander = _endpoint(_PROVIDER, values), _endpoint(_EXPANDER, values)
    namespace = values["kwok_templates_namespace"]
    if provider is None and expander is None and not namespace:
        return None
    from trimtab.autoscaling.external import ExternalSettings

    return ExternalSettings(cloud_provider=provider, expander=expander, kwok_namespace=namespace)


def _endpoint(prefix: str, values: dict[str, str]) -> GrpcEndpoint | None:
    """The endpoint of that prefix; ``None`` where it is not given.

    Raises:
        click.UsageError: files are given for nobody, or a certificate without its key.
    """
    address, *files = (values[f"{prefix}-{each}".replace("-", "_")] for each in ("address", *_FILES))
    if not address:
        if any(files):
            given = ", ".join(f"--{prefix}-{name}" for name, file in zip(_FILES, files, strict=True) if file)
            raise click.UsageError(f"{given}: of no use without --{prefix}-address")
        return None
    if bool(files[1]) != bool(files[2]):
        raise click.UsageError(f"--{prefix}-cert-file and --{prefix}-key-file belong together")
    from trimtab.autoscaling.external import GrpcEndpoint

    return GrpcEndpoint(address, *files)
