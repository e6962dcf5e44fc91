"""The configuration of the connection to the API server, which is loaded once per command.

A command connects several times: it asks the operator, then reads policies, objects and the history. Each time, an exec
plugin of the kubeconfig would run again, which may take seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from trimtab.kube.connection.config import ServerConfig

_KEY: Final = "trimtab.cli.connection"


def connection_config(kubeconfig: str | None, *, context: str | None) -> ServerConfig:
    """Return the configuration for a kubeconfig and a context. It is loaded once per command.

    Call it before the event loop starts, because it may run an exec plugin.

    Args:
        kubeconfig: the kubeconfig; ``None`` for kubectl's defaults or, if there are none, the service account.
        context: the context of the kubeconfig; ``None`` for its current one.

    Raises:
        InputError: the kubeconfig is invalid.
    """
    from trimtab.kube.connection.config import load_config

    command = click.get_current_context(silent=True)
    if command is None:
        return load_config(kubeconfig, context=context)
    loaded: dict[tuple[str | None, str | None], ServerConfig] = command.meta.setdefault(_KEY, {})
    key = (kubeconfig, context)
    if key not in loaded:
        loaded[key] = load_config(kubeconfig, context=context)
    return loaded[key]
