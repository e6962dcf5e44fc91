"""Reads the custom resources of trimtab from the cluster itself, for commands without ``--policy``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli.options import STDIN
from trimtab.inspection.live import POLICY_KINDS, list_manifests
from trimtab.kube.printable import printable
from trimtab.kube.resources import Resource

if TYPE_CHECKING:
    from trimtab.kube.api import Api, Forbidden
    from trimtab.kube.wire.files.documents import Document


def print_warning(message: str) -> None:
    """Print a warning on stderr."""
    click.echo(f"trimtab: warning: {message}", err=True)


def cluster_policies(
    cluster: str | None,
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    resources: Sequence[Resource] = POLICY_KINDS,
    warn: Callable[[str], None] = print_warning,
) -> list[tuple[str, Document]]:
    """Return the custom resources of trimtab in a cluster, each with its source for error messages.

    Args:
        cluster: a file or a folder; ``None`` for the live cluster.
        kubeconfig: the kubeconfig of the live cluster.
        context: the context of the kubeconfig.
        resources: the kinds to read.
        warn: called with a warning for each kind that the user may not list; by default it is printed on stderr.

    Raises:
        click.UsageError: the cluster is read from standard input, which cannot be read twice.
        InputError: a file or the kubeconfig is invalid.
        CommandError: the API server does not respond or refuses a request.
    """
    if cluster == STDIN:
        raise click.UsageError("with --cluster -, policies must be given with --policy")
    if cluster is not None:
        return list(_of_files(cluster, resources))
    from trimtab.cli.live import with_api

    return with_api(
        lambda api: read_custom_resources(api, resources, warn=warn), kubeconfig=kubeconfig, context=context
    )


def _of_files(cluster: str, resources: Sequence[Resource]) -> Iterable[tuple[str, Document]]:
    import msgspec

    from trimtab.kube.wire.files.reader import read_documents
    from trimtab.kube.wire.identity import ObjectIdentity, decode_identity

    wanted = {(each.kind, each.api_version) for each in resources}
    seen = set()
    for source, document in read_documents(Path(cluster)):
        if document.fault is not None:
            continue
        content = document.content
        identity = (
            decode_identity(content)
            if isinstance(content, msgspec.Raw)
            else msgspec.convert(dict(content), ObjectIdentity)
        )
        kind = identity.kind or document.kind
        if (kind, identity.api_version) in wanted and (kind, identity.name, identity.revision) not in seen:
            if identity.revision is not None:  # oc adm inspect may store an object twice
                seen.add((kind, identity.name, identity.revision))
            yield source, document


async def read_custom_resources(
    api: Api, resources: Sequence[Resource] = POLICY_KINDS, *, warn: Callable[[str], None] = print_warning
) -> list[tuple[str, Document]]:
    """Return the custom resources of a live cluster, each with its source for error messages.

    Args:
        api: the API server.
        resources: the kinds to read. Kinds whose CustomResourceDefinition is not installed have no objects.
        warn: called with a message for each kind that the user may not read.

    Raises:
        LoadFailed: the API server does not respond or refuses a request.
    """
    from trimtab.kube.wire.files.documents import Document

    def forbidden(resource: Resource, error: Forbidden) -> None:
        warn(f"{resource.name} is treated as empty: {printable(str(error))}")

    manifests = await list_manifests(api, resources, on_forbidden=forbidden)
    names = {each.kind: each.name for each in resources}
    return [(names[each["kind"]], Document("", each)) for each in manifests]
