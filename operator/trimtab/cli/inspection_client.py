"""Asks the operator's inspection API, which answers from memory what a command would otherwise read the cluster for.

Example::

    document = ask_operator("nodes/n1/explanation", kubeconfig=None, context=None)
    if document is None:
        ...  # read the cluster
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import click

F = TypeVar("F", bound=Callable[..., Any])

PREFIX: Final = "/apis/inspection.trimtab.dev/v1alpha1"
TIMEOUT: Final = 8.0
"""Seconds that the operator has for an answer. Reading a cluster of 5,000 nodes takes about as long."""


def direct_option(command: F) -> F:
    """Add the option ``--direct``, with which a command does not ask the operator."""
    return click.option(
        "--direct",
        is_flag=True,
        help="Read the API server with your own permissions, instead of asking the operator's inspection API, "
        "which answers from the operator's cache.",
    )(command)


def object_path(resource: str, name: str, *, inside: str = "", **params: str) -> str:
    """Return the path of the explanation of an object: ``namespaces/shop/pods/web-1/explanation``.

    Args:
        resource: the plural.
        name: the name.
        inside: the namespace; empty for objects without one.
        params: the query parameters.
    """
    where = f"namespaces/{quote(inside, safe='')}/" if inside else ""
    return _with_params(f"{where}{resource}/{quote(name, safe='')}/explanation", params)


def current_path(resource: str, *, namespace: str | None = None) -> str:
    """Return the path of a document about the whole cluster, or about one namespace: ``protections/current``."""
    return _with_params(f"{resource}/current", {} if namespace is None else {"namespace": namespace})


def _with_params(path: str, params: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(params)}" if params else path


def ask_unless_direct(
    path: str,
    *,
    direct: bool,
    cluster: str | None,
    kubeconfig: str | None,
    context: str | None,
    skip_invalid: bool,
    policies: tuple[str, ...],
    now: int | None,
) -> dict[str, Any] | None:
    """Return what :func:`ask_operator` does; ``None`` with options that the inspection API does not know.

    Args:
        path: the path below the API's version.
        direct: the option ``--direct``.
        cluster: the option ``--cluster``.
        kubeconfig: the option ``--kubeconfig``.
        context: the option ``--context``.
        skip_invalid: the option ``--skip-invalid``.
        policies: the values of the option ``--policy``.
        now: the option ``--now``.

    Raises:
        InputError: the kubeconfig is invalid.
    """
    if direct or cluster is not None or skip_invalid or policies or now is not None:
        return None
    return ask_operator(path, kubeconfig=kubeconfig, context=context)


def ask_operator(path: str, *, kubeconfig: str | None, context: str | None) -> dict[str, Any] | None:
    """Return a document of the inspection API; ``None`` if the command must read the cluster itself.

    That is the case if the API is not installed or not available, if the user may not use it, and if the operator
    lacks something for the answer. The command then reports errors in its own way. If the operator should answer and
    does not, a note on stderr says why, because the command then takes longer. A 403 is no reason for a note: the API
    server sends it also if the API is not installed.

    Args:
        path: the path below the API's version, such as ``plans/current``.
        kubeconfig: the kubeconfig; ``None`` for kubectl's defaults.
        context: the context of the kubeconfig; ``None`` for its current one.

    Raises:
        InputError: the kubeconfig is invalid.
    """
    import uvloop

    from trimtab.cli.connection import connection_config
    from trimtab.kube.api import ApiError, Forbidden, NotFound, Unreachable
    from trimtab.kube.connection.transport import Transport
    from trimtab.kube.printable import printable
    from trimtab.kube.retry import Backoff

    config = connection_config(kubeconfig, context=context)

    async def ask() -> dict[str, Any] | None:
        async with Transport(config, retries=Backoff(attempts=1)) as api:
            try:
                found = await api.request("GET", f"{PREFIX}/{path}", timeout=TIMEOUT)
            except (Forbidden, NotFound):  # not installed, not permitted, or no such object: the command reports it
                return None
            except (ApiError, Unreachable) as error:
                if isinstance(error, Unreachable) and not isinstance(error.__cause__, TimeoutError):
                    return None  # the API server refuses connections, which the command reports
                reason = printable(str(error))
                click.echo(f"trimtab: note: the operator does not answer, reading the cluster: {reason}", err=True)
                return None
        return found if isinstance(found, dict) else None

    return uvloop.run(ask())
