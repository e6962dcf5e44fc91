"""Reads the node groups that kwok's node templates define, once per iteration, and creates and deletes their nodes."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.external.kwok import templates
from trimtab.autoscaling.external.kwok.templates import GROUP, KwokConfig, KwokTemplate, new_name, new_node, provider_id
from trimtab.autoscaling.groups import (
    ExternalGroup,
    ExternalGroups,
    ExternalMachine,
    GroupMachine,
    NodeGroup,
    ObjectProblem,
)
from trimtab.autoscaling.providers.checks import check_increase, check_lowering, live_machines
from trimtab.autoscaling.providers.outcome import (
    MachineRemoval,
    MarkedMachines,
    ScaleError,
    ScaleFailure,
    ScaleResult,
    machine_names,
)
from trimtab.cluster.lister import Lister
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Conflict, NotFound, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Node
from trimtab.kube.resources import CONFIG_MAPS, NODES
from trimtab.kube.verbs import get

SECONDS_UNTIL_SHOWN: Final = 60.0
"""Seconds after which a created node that no watch has delivered counts as deleted.

Nodes are usually delivered within one second.
"""


class NodeLedger:
    """Counts the nodes of each kwok group.

    The count is the group's size, so the size survives restarts without being stored. Watches lag behind recent
    requests. Until they have caught up, created nodes that are not in the cache are counted, and deleted nodes that are
    still in the cache are not. Otherwise a request would be repeated.

    Args:
        lister: reads the informers' caches.
        monotonic: returns seconds of a monotonic clock.
    """

    def __init__(self, lister: Lister, *, monotonic: Callable[[], float]) -> None:
        self._lister = lister
        self._monotonic = monotonic
        self._made: dict[str, tuple[str, float]] = {}
        self._deleted: set[str] = set()

    def made(self, group: str, name: str) -> None:
        """Record that a node was created."""
        self._made[name] = (group, self._monotonic())

    def deleted(self, uid: str) -> None:
        """Record that a node was deleted."""
        self._deleted.add(uid)

    def nodes(self) -> Mapping[str, dict[str, Node | None]]:
        """Return the nodes of each group by name.

        The value is ``None`` for created nodes that no watch has delivered yet.
        """
        nodes = self._lister.nodes
        found: dict[str, dict[str, Node | None]] = {}
        uids = set()
        for _, node in sorted(nodes.items()):
            uids.add(node.uid)
            group = node.annotations.get(GROUP, "")
            if group and node.provider_id == provider_id(node.name) and node.uid not in self._deleted:
                found.setdefault(group, {})[node.name] = node
        self._deleted &= uids
        late = self._monotonic() - SECONDS_UNTIL_SHOWN
        self._made = {
            name: (group, since) for name, (group, since) in self._made.items() if since > late and name not in nodes
        }
        for name, (group, _) in self._made.items():
            found.setdefault(group, {})[name] = None
        return found


MAX_CONCURRENT_REQUESTS: Final = 16
"""Maximum number of concurrent requests per group."""

REQUEST_SECONDS: Final = 10.0


def _suffix() -> str:
    return secrets.token_hex(3)


class KwokProvider:
    """The :class:`~trimtab.autoscaling.providers.Provider` for kwok's groups.

    Args:
        api: the API server.
        ledger: the nodes of the groups.
        suffix: returns a unique suffix for a node's name.

    Attributes:
        config: the configuration for creating nodes.
        templates: templates by group name.
    """

    def __init__(self, api: Api, ledger: NodeLedger, *, suffix: Callable[[], str] = _suffix) -> None:
        self.config = KwokConfig()
        self.templates: dict[str, KwokTemplate] = {}
        self._api = api
        self._ledger = ledger
        self._suffix = suffix

    async def increase(self, group: NodeGroup, to: int) -> ScaleResult:
        failed: ScaleError | None = None
        number = 0
        try:
            check_increase(group, to)
            template = self._template(group)
            number = to - self._size(group)
            await self._send_concurrently(self._create(template) for _ in range(number))
        except ScaleError as error:
            failed = error
        return ScaleResult(group.id, group.target, to, **_failure_fields(failed), calls=number)

    async def lower(self, group: NodeGroup, to: int) -> ScaleResult:
        try:
            check_lowering(group, to)
        except ScaleError as error:
            return ScaleResult(group.id, group.target, to, **_failure_fields(error))
        return ScaleResult(group.id, group.target, to)

    async def mark(self, group: NodeGroup, machines: Sequence[GroupMachine], *, now: float) -> MarkedMachines:
        return MarkedMachines(group.id, tuple(machines))

    async def remove(self, group: NodeGroup, marked: MarkedMachines, *, count: int | None = None) -> MachineRemoval:
        machines = marked.machines
        failed: ScaleError | None = None
        nodes: list[Node] = []
        try:
            nodes = self._chosen(group, machines)
            await self._send_concurrently(self._delete(node) for node in nodes)
        except ScaleError as error:
            failed = error
        chosen = {machine.name for machine in machines}
        return MachineRemoval(
            group.id,
            group.target,
            group.target - len(nodes),
            **_failure_fields(failed),
            calls=len(nodes),
            machines=machine_names(machines) if nodes else (),
            others=tuple(sorted(each.name for each in live_machines(group) if each.name not in chosen)),
        )

    async def unmark(self, group: NodeGroup, machines: Sequence[str], *, mark: str = "") -> tuple[str, ...]:
        return ()

    def _template(self, group: NodeGroup) -> KwokTemplate:
        found = self.templates.get(group.name)
        if found is None:
            raise ScaleError(ScaleFailure.NOT_FOUND, f"the template of the group {group.name} no longer exists")
        return found

    def _size(self, group: NodeGroup) -> int:
        """Return the current number of nodes in a group.

        Raises:
            ScaleError: the number differs from the target size that the plan was based on.
        """
        found = len(self._ledger.nodes().get(group.name, ()))
        if found != group.target:
            message = f"the plan was based on a target of {group.target}, but the target is {found} now"
            raise ScaleError(ScaleFailure.CONFLICT, message)
        return found

    def _chosen(self, group: NodeGroup, machines: Sequence[GroupMachine]) -> list[Node]:
        if group.paused:
            raise ScaleError(ScaleFailure.REFUSED, f"the group is not scaled: {group.paused}")
        nodes_by_name = self._ledger.nodes().get(group.name, {})
        found = [node for machine in machines if (node := nodes_by_name.get(machine.node)) is not None]
        if not machines or len(found) != len(machines):
            strays = sorted(machine.name for machine in machines if nodes_by_name.get(machine.node) is None)
            raise ScaleError(
                ScaleFailure.REFUSED, f"these are not nodes of the group: {', '.join(strays) or 'none was given'}"
            )
        if len(nodes_by_name) - len(found) < group.minimum:
            message = f"a size of {len(nodes_by_name)} less {len(found)} is below the minimum of {group.minimum}"
            raise ScaleError(ScaleFailure.REFUSED, message)
        return found

    async def _create(self, template: KwokTemplate) -> None:
        name = new_name(template.group, self._suffix())
        await verbs.create(self._api, NODES, new_node(template, name, self.config), timeout=REQUEST_SECONDS)
        self._ledger.made(template.group, name)

    async def _delete(self, node: Node) -> None:
        with suppress(NotFound, Conflict):  # the node was deleted, or another node has its name
            await verbs.delete(self._api, NODES, node.name, uid=node.uid, timeout=REQUEST_SECONDS)
        self._ledger.deleted(node.uid)

    async def _send_concurrently(self, requests: Iterable[Any]) -> None:
        """Send all requests concurrently, even if one of them fails.

        Raises:
            ScaleError: some requests failed; the message has their number and the first error.
        """
        at_once = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)

        async def one(request: Any) -> ApiError | Unreachable | None:
            async with at_once:
                try:
                    await request
                except (ApiError, Unreachable) as error:
                    return error
            return None

        answers = await asyncio.gather(*(one(request) for request in requests))
        errors = [error for error in answers if error is not None]
        for error in errors:
            message = f"{len(errors)} of {len(answers)} requests failed: {error}"
            lost = isinstance(error, Unreachable)
            raise ScaleError(ScaleFailure.from_error(error), message, doubt=lost or len(errors) < len(answers))


def _failure_fields(failed: ScaleError | None) -> dict[str, Any]:
    if failed is None:
        return {}
    return {"failure": failed.failure, "message": failed.message, "doubt": failed.doubt}


NAME: Final = "kwok"
READ_SECONDS: Final = 2.0
"""Timeout in seconds for reading both ConfigMaps."""


class Kwok:
    """The :class:`~trimtab.autoscaling.external.source.ExternalSource` of kwok's node templates.

    Args:
        api: the API server.
        namespace: namespace of the ConfigMaps.
        ledger: the nodes of the groups.
        provider: changes the groups.
    """

    name = NAME

    def __init__(self, api: Api, namespace: str, ledger: NodeLedger, provider: KwokProvider) -> None:
        self.provider = provider
        self._api = api
        self._namespace = namespace
        self._ledger = ledger

    async def observe(self, spec: ClusterAutoscalerSpec) -> ExternalGroups:
        paused, problems = "", []
        try:
            async with asyncio.timeout(READ_SECONDS):
                problems += await self._read()
        except (ApiError, Unreachable, TimeoutError) as error:
            paused = f"its template cannot be read: {str(error) or f'no answer within {READ_SECONDS:g} s'}"
            reason = reasons.PROVIDER_UNREACHABLE
            problems.append(ObjectProblem("ConfigMap", self._namespace, templates.TEMPLATES, reason, paused))
        nodes = self._ledger.nodes()
        made = [_group(each, nodes.get(each.group, {}), paused) for each in self.provider.templates.values()]
        return ExternalGroups(tuple(made), tuple(problems))

    async def close(self) -> None:
        """See :class:`~trimtab.autoscaling.external.source.ExternalSource`."""

    async def _read(self) -> list[ObjectProblem]:
        """Read both ConfigMaps, and return their problems. Groups with invalid templates are left out."""
        name = templates.CONFIG
        found: tuple[KwokTemplate, ...] = ()
        wrong: tuple[str, ...] = ()
        try:
            self.provider.config = templates.read_config(await self._data(name))
            name = self.provider.config.templates
            found, wrong = templates.read_templates(await self._data(name), self.provider.config)
        except InputError as error:
            wrong = (str(error),)
        except NotFound:
            wrong = ("there is no such ConfigMap",)
        self.provider.templates = {each.group: each for each in found}
        return [templates.problem(self._namespace, name, message) for message in wrong]

    async def _data(self, name: str) -> Mapping[str, str]:
        found = await get(self._api, CONFIG_MAPS, name, namespace=self._namespace, timeout=READ_SECONDS)
        return found.get("data") or {}


def _group(template: KwokTemplate, nodes: Mapping[str, Node | None], paused: str) -> ExternalGroup:
    return ExternalGroup(
        provider=NAME,
        name=template.group,
        minimum=template.minimum,
        maximum=template.maximum,
        target=sum(node is None or node.deleted is None for node in nodes.values()),
        machines=tuple(
            ExternalMachine(
                provider_id=templates.provider_id(name),
                node=name,
                deleting=node is not None and node.deleted is not None,
                creating=node is None,
                since=None if node is None else node.created,
            )
            for name, node in nodes.items()
        ),
        node=template.node,
        paused=paused,
    )


def kwok(api: Api, namespace: str, *, lister: Lister) -> Kwok:
    """Create the source of kwok's node groups.

    Args:
        api: the API server.
        namespace: namespace of the ConfigMaps.
        lister: reads the informers' caches.
    """
    ledger = NodeLedger(lister, monotonic=time.monotonic)
    return Kwok(api, namespace, ledger, KwokProvider(api, ledger))
