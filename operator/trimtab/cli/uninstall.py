"""``trimtab uninstall --check``: lists what trimtab has left in the cluster."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from trimtab.cli.errors import FAILED, report_errors
from trimtab.cli.options import connection_options, output_option

if TYPE_CHECKING:
    from trimtab.inspection.leftovers import Found
    from trimtab.kube.api import Api
    from trimtab.kube.resources import Resource


@click.command()
@click.option(
    "--check", is_flag=True, help="Required: confirms that the command only lists what is left and changes nothing."
)
@connection_options
@output_option("table", "json")
def uninstall(*, check: bool, kubeconfig: str | None, context: str | None, form: str) -> None:
    """List what trimtab has left in the live cluster, with the command that removes each object or field.

    The list contains custom resources and their finalizers, the objects that the chart, the kustomize base or OLM
    installed, CRDs, the Leases and ConfigMaps that the operator created, taints, cordons, conditions and annotations of
    nodes, and annotations of node groups and machines. Run the commands in the order of the list. This command removes
    nothing: uninstall trimtab with helm, kubectl or OLM.

    The exit status is 0 if nothing is left, and 1 if something is left or if a resource could not be listed.
    """
    from trimtab.cli.live import with_api
    from trimtab.cli.output import emit
    from trimtab.inspection.leftovers import leftovers, leftovers_document

    if not check:
        raise click.UsageError("Pass --check; this command only lists what is left and how to remove it.")
    with report_errors():
        found = with_api(read_found, kubeconfig=kubeconfig, context=context)
        document = leftovers_document(leftovers(found), found.unchecked)
        emit(document, form) if form == "json" else _print(document)
        if not document["clean"]:
            sys.exit(FAILED)


async def read_found(api: Api) -> Found:
    """Read the objects that may belong to trimtab. Of all kinds but nodes only the metadata are read.

    Raises:
        Unreachable: there was no response.
    """
    from trimtab.api.crds import DEFINITIONS
    from trimtab.cluster.kinds import versions
    from trimtab.inspection import leftovers as kinds
    from trimtab.kube.resources import API_SERVICES, NODES, SECRETS, Resource

    reader = _Reader(api)
    metadata: dict[Resource, list[dict[str, Any]]] = {}
    for resource in kinds.LABELLED:
        # The operator registers its APIService without the chart's labels.
        selector = "" if resource == API_SERVICES else kinds.NAME_LABEL
        metadata[resource] = await reader.metadata(resource, selector=selector)
    for resource in kinds.INSTALLED_BY_OLM:
        metadata[resource] = await reader.metadata(resource)
    for resource in kinds.WRITTEN:
        # A Lease per node is in kube-node-lease.
        others = await reader.metadata(resource, fields="metadata.namespace!=kube-node-lease")
        known = {(each.get("namespace"), each["name"]) for each in metadata.get(resource, ())}
        metadata[resource] = metadata.get(resource, []) + [
            each for each in others if (each.get("namespace"), each["name"]) not in known
        ]
    for resource in kinds.NODE_GROUPS:
        for version in versions(resource):
            if listed := await reader.metadata(version):
                metadata[resource] = listed
                break
    crds = {each["name"]: each for each in await reader.metadata(kinds.CRDS)}
    custom = {
        each.name: await reader.metadata(Resource(each.group, each.version, each.plural, each.kind))
        for each in DEFINITIONS
        if each.name in crds
    }
    releases = await reader.metadata(SECRETS, selector="owner=helm")
    return kinds.Found(
        metadata=metadata,
        custom=custom,
        crds={name: crds[name] for name in custom},
        nodes=await reader.objects(NODES),
        releases=frozenset((each["namespace"], each["labels"].get("name", "")) for each in releases),
        unchecked=reader.unchecked,
    )


class _Reader:
    """Lists resources, and records those that the user may not list. Resources that are not served have no objects."""

    def __init__(self, api: Api) -> None:
        self.unchecked: dict[str, str] = {}
        self._api = api

    async def metadata(self, resource: Resource, *, selector: str = "", fields: str = "") -> list[dict[str, Any]]:
        from trimtab.kube.verbs import METADATA_LIST

        listed = await self.objects(resource, selector=selector, fields=fields, accept=METADATA_LIST)
        return [each["metadata"] for each in listed]

    async def objects(
        self, resource: Resource, *, selector: str = "", fields: str = "", accept: str = ""
    ) -> list[dict[str, Any]]:
        from trimtab.kube.api import Forbidden, NotFound
        from trimtab.kube.verbs import list_objects

        try:
            listed = await list_objects(
                self._api, resource, label_selector=selector, field_selector=fields, accept=accept
            )
        except NotFound:
            return []
        except Forbidden as error:
            self.unchecked[resource.name] = str(error)
            return []
        return listed.items


def _print(document: dict[str, Any]) -> None:
    from trimtab.cli.output import echo, table

    if document["clean"]:
        echo("Nothing of trimtab is left in the cluster.")
        return
    if document["left"]:
        rows = [
            [
                f"{each['kind']} {each['namespace']}{'/' if each['namespace'] else ''}{each['name']}",
                each["what"],
                each["command"],
            ]
            for each in document["left"]
        ]
        echo(table(["OBJECT", "LEFT", "REMOVE WITH"], rows))
    for each in document["unchecked"]:
        echo(f"Not checked: {each['resource']}: {each['message']}")
