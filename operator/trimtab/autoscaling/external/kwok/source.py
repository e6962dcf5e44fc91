"""The groups of kwok's node templates, read once a pass."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.external.kwok import templates
from trimtab.autoscaling.external.kwok.ledger import Ledger
from trimtab.autoscaling.external.kwok.provider import KwokProvider
from trimtab.autoscaling.external.kwok.templates import KwokTemplate
from trimtab.autoscaling.groups import ExternalGroup, ExternalGroups, ExternalMachine, Problem
from trimtab.kube.api import Api, ApiError, NotFound, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Node
from trimtab.kube.resources import CONFIG_MAPS
from trimtab.kube.verbs import get

NAME: Final = "kwok"
PATIENCE: Final = 2.0
"""Seconds for both ConfigMaps."""


class Kwok:
    """A :class:`~trimtab.autoscaling.external.source.Source`.

    Args:
        api: the API server.
        namespace: with the ConfigMaps.
        ledger: of the groups' nodes.
        provider: acts on the groups.
    """

    name = NAME

    def __init__(self, api: Api, namespace: str, ledger: Ledger, provider: KwokProvider) -> None:
        self.provider = provider
        self._api = api
        self._namespace = namespace
        self._ledger = ledger

    async def observe(self, spec: ClusterAutoscalerSpec) -> ExternalGroups:
        """See :class:`~trimtab.autoscaling.external.source.Source`."""
        del spec
        paused, problems = "", []
        try:
            async with asyncio.timeout(PATIENCE):
                problems += await self._read()
        except (ApiError, Unreachable, TimeoutError) as error:
            paused = f"its template cannot be read: {str(error) or f'no answer within {PATIENCE:g} s'}"
            reason = reasons.PROVIDER_UNREACHABLE
            problems.append(Problem("ConfigMap", self._namespace, templates.TEMPLATES, reason, paused))
        nodes = self._ledger.nodes()
        made = [_group(each, nodes.get(each.group, {}), paused) for each in self.provider.templates.values()]
        return ExternalGroups(tuple(made), tuple(problems))

    async def close(self) -> None:
        """See :class:`~trimtab.autoscaling.external.source.Source`."""

    async def _read(self) -> list[Problem]:
        """Read both ConfigMaps; what is wrong with them leaves no groups, or leaves some out."""
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
        found = await get(self._api, CONFIG_MAPS, name, namespace=self._namespace, timeout=PATIENCE)
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
