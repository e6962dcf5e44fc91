"""Sends requests about pods to scheduler extenders over HTTP (``HTTPExtender`` of kube-scheduler v1.36).

    chain = ExtenderChain(spec.extenders, ApiObjects(api, clock), scale=10)
    if chain.interested(pod):
        verdict = await chain.consult(pod, feasible_node_names)   # the cycle plans the pod with the verdict

What can go wrong, and what happens then:

- An extender does not respond in time, reports an error, or sends an invalid response: the attempt fails and the pod is
retried, unless the extender is ignorable. Errors of scores are always ignored, as in kube-scheduler.
- A response is larger than :data:`MAX_RESPONSE`: this is an error, and the rest is not read.
- A URL resolves to a link-local, multicast or unspecified address, such as a cloud's metadata service: the connection
  is refused. Redirects are not followed, and proxies from the environment are ignored.

For a pod that requests no managed resource, the only cost is one comparison of names.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import errno
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp
import msgspec

from trimtab import __version__
from trimtab.api.scalars import parse_go_duration
from trimtab.api.scheduler_extenders import Extender, ExtenderTLS
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, NotFound, NotLeading, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.connection.config import Login, ServerConfig
from trimtab.kube.connection.credentials import tls_context
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Pod
from trimtab.kube.resources import NODES, PODS
from trimtab.scheduling.extender_verdicts import (
    ExtenderError,
    Verdict,
    concerns,
    must_be_asked,
    read_binding_answer,
    read_filter_answer,
    read_priorities,
    read_victims,
)

log = logging.getLogger(__name__)

MAX_RESPONSE: Final = 64 << 20
"""Maximum size of a response in bytes. The nodes of a cluster of 5,000 nodes take about 40 MB."""

CONNECTIONS: Final = 16
"""Maximum number of connections to one extender."""

NODES_MAX_AGE: Final = 10.0
"""Seconds for which the nodes that are sent to extenders without a node cache are reused."""

USER_AGENT: Final = f"trimtab/{__version__}"


class ExtenderObjects(Protocol):
    """Supplies complete objects as JSON. The caches contain only the fields that planners read."""

    async def pod(self, pod: Pod) -> msgspec.Raw:
        """Return a pod.

        Raises:
            ExtenderError: the pod was deleted, or cannot be read.
        """
        ...

    async def nodes(self, names: Sequence[str]) -> list[msgspec.Raw]:
        """Return nodes. Nodes that do not exist are omitted.

        Raises:
            ExtenderError: the nodes cannot be read.
        """
        ...


class ApiObjects:
    """Reads objects for extenders from the API server. Nodes are listed at most every :data:`NODES_MAX_AGE` seconds."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._nodes: dict[str, msgspec.Raw] = {}
        self._read = float("-inf")
        self._reading = asyncio.Lock()

    async def pod(self, pod: Pod) -> msgspec.Raw:
        """See :meth:`ExtenderObjects.pod`."""
        try:
            found = await verbs.get(self._api, PODS, pod.name, namespace=pod.namespace)
        except NotFound:
            found = {}
        except (ApiError, Unreachable, NotLeading) as error:
            raise ExtenderError(f"cannot read the pod for the extender: {error}") from error
        if found.get("metadata", {}).get("uid") != pod.uid:
            raise ExtenderError("the pod was deleted")
        return _encoded({"apiVersion": "v1", "kind": "Pod", **found})

    async def nodes(self, names: Sequence[str]) -> list[msgspec.Raw]:
        """See :meth:`ExtenderObjects.nodes`."""
        async with self._reading:
            missing = any(name not in self._nodes for name in names)
            if missing or self._clock.monotonic() - self._read > NODES_MAX_AGE:
                try:
                    listed = await verbs.list_objects(self._api, NODES)
                except (ApiError, Unreachable, NotLeading) as error:
                    raise ExtenderError(f"cannot read the nodes for the extender: {error}") from error
                kind = {"apiVersion": "v1", "kind": "Node"}
                self._nodes = {node["metadata"]["name"]: _encoded({**kind, **node}) for node in listed.items}
                self._read = self._clock.monotonic()
            return [self._nodes[name] for name in names if name in self._nodes]


def _encoded(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


class ExtenderClient:
    """Sends requests to one extender.

    Args:
        spec: the extender.

    Raises:
        InputError: a certificate is not usable.
    """

    def __init__(self, spec: Extender) -> None:
        self.spec = spec
        self._config = _server_config(spec)
        self._tls = tls_context(self._config)
        self._timeout = aiohttp.ClientTimeout(total=parse_go_duration(spec.http_timeout))
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def post(self, verb: str, body: object) -> object:
        """Send a request and return the decoded response.

        Raises:
            ExtenderError: there is no valid response.
        """
        url = f"{self.spec.url_prefix.rstrip('/')}/{verb}"
        try:
            async with self._open().post(
                url,
                data=msgspec.json.encode(body),
                headers={"Content-Type": "application/json"},
                allow_redirects=False,
                server_hostname=self._config.tls_server_name or None,
            ) as response:
                if response.status != 200:
                    raise ExtenderError(f"POST {url}: the extender answered with status {response.status}")
                return msgspec.json.decode(await _content(response, url))
        except (aiohttp.ClientError, OSError) as error:  # aiohttp's timeouts are OSErrors, too
            words = str(error) or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)
            raise ExtenderError(f"POST {url}: {words}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ExtenderError(f"POST {url}: the answer is not JSON: {error}") from error

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=CONNECTIONS, ssl=True if self._tls is None else self._tls, socket_factory=_checked_socket
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=self._timeout,
                headers={"User-Agent": USER_AGENT, "Accept": "application/json"},
                cookie_jar=aiohttp.DummyCookieJar(),
                max_line_size=8190,
            )
        return self._session


async def _content(response: aiohttp.ClientResponse, url: str) -> bytes:
    """Read the body, up to the maximum size of a response."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_RESPONSE:
            raise ExtenderError(f"POST {url}: the answer is larger than {MAX_RESPONSE} bytes")
    return bytes(body)


def _checked_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Create a socket for an address, unless connections to the address are refused."""
    family, kind, protocol, _, where = address
    refuse_address(str(where[0]))
    return socket.socket(family, kind, protocol)


def refuse_address(text: str) -> None:
    """Raise an error for a link-local, multicast or unspecified address, because no extender can have one.

    Loopback and private addresses are permitted, because extenders run next to the scheduler or in the cluster.

    Raises:
        PermissionError: connections to the address are refused.
    """
    found = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if found.is_link_local or found.is_multicast or found.is_unspecified:
        message = f"connections to {found} are refused: the address is not one of an extender"
        raise PermissionError(errno.EACCES, message)


def _server_config(spec: Extender) -> ServerConfig:
    tls = spec.tls_config or ExtenderTLS()
    source = f"extender {spec.url_prefix}"
    try:
        ca = base64.b64decode(tls.ca_data, validate=True) + _read(tls.ca_file)
        login = Login(certificate=_read(tls.cert_file), key=_read(tls.key_file))
    except (OSError, binascii.Error) as error:
        raise InputError(f"the TLS settings are not usable: {error}", source=source) from error
    return ServerConfig(
        server=spec.url_prefix,
        source=source,
        ca=ca,
        insecure=tls.insecure,
        tls_server_name=tls.server_name,
        login=login,
    )


def _read(file: str) -> bytes:
    return Path(file).read_bytes() if file else b""


class ExtenderChain:
    """Asks the extenders of one policy about pods.

    Args:
        extenders: the extenders in the order in which they filter.
        objects: supplies complete objects.
        scale: the factor between the scores of extenders (0 to 10) and those of the policy's scores: 1 for legacy
            priorities, 10 for plugins.

    Raises:
        InputError: a certificate is not usable.
    """

    def __init__(self, extenders: Sequence[Extender], objects: ExtenderObjects, *, scale: int) -> None:
        self._clients = [ExtenderClient(spec) for spec in extenders]
        self._objects = objects
        self._scale = scale

    def interested(self, pod: Pod) -> bool:
        """Return whether the pod must be filtered or scored by an extender before it is planned."""
        return any(must_be_asked(client.spec, pod) for client in self._clients)

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            await client.close()

    async def consult(self, pod: Pod, feasible: Sequence[str]) -> Verdict:
        """Ask the interested extenders: one after the other to filter, then all at once to score.

        Args:
            pod: the pending pod.
            feasible: the names of the nodes that are feasible without the extenders.

        Raises:
            ExtenderError: an extender that is not ignorable failed to filter.
        """
        interested = [client for client in self._clients if concerns(client.spec, pod)]
        passed, failed = list(feasible), dict[str, str]()
        unresolvable: frozenset[str] = frozenset()
        for client in interested:
            if not passed or not client.spec.filter_verb:
                continue
            answer = await self._ignoring(client, self._filter(client, pod, passed))
            if answer is not None:
                passed = [name for name in passed if name in answer.passed]
                failed |= answer.failed
                unresolvable |= answer.unresolvable
        scorers = [client for client in interested if client.spec.prioritize_verb]
        scores: dict[str, int] = {}
        if len(passed) > 1:
            for found in await asyncio.gather(*(self._scores(client, pod, passed) for client in scorers)):
                for name, score in found.items():
                    scores[name] = scores.get(name, 0) + score
        failed = {name: reason for name, reason in failed.items() if name not in passed}
        return Verdict(frozenset(feasible), frozenset(passed), failed, unresolvable - set(passed), scores)

    async def preempt(self, pod: Pod, proposed: Mapping[str, Sequence[Pod]]) -> Mapping[str, Sequence[Pod]]:
        """Ask the interested extenders which of the proposed nodes and victims they accept (``callExtenders``).

        Args:
            pod: the preemptor.
            proposed: the victims on each node, most important first.

        Returns:
            The accepted nodes with victims, which are among the proposed ones.

        Raises:
            ExtenderError: an extender that is not ignorable failed.
        """
        left = proposed
        for client in self._clients:
            if left and client.spec.preempt_verb and concerns(client.spec, pod):
                answer = await self._ignoring(client, self._victims(client, pod, left))
                left = left if answer is None else answer
        return left

    def preempts(self, pod: Pod) -> bool:
        """Return whether an extender must be asked about preemptions for the pod."""
        return any(client.spec.preempt_verb and concerns(client.spec, pod) for client in self._clients)

    def binds(self, pod: Pod) -> bool:
        """Return whether an extender binds the pod instead of the scheduler."""
        return self._binder(pod) is not None

    async def bind(self, pod: Pod, node: str) -> None:
        """Let the extender bind the pod. Call this only if :meth:`binds` returns ``True``.

        Raises:
            ExtenderError: the extender failed. The pod may be bound nevertheless.
        """
        client = self._binder(pod)
        assert client is not None
        await self._objects.pod(pod)  # it still exists, and this process is still the leader
        body = {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node}
        read_binding_answer(await client.post(client.spec.bind_verb, body))

    def _binder(self, pod: Pod) -> ExtenderClient | None:
        return next((each for each in self._clients if each.spec.bind_verb and concerns(each.spec, pod)), None)

    async def _ignoring(self, client: ExtenderClient, request: Awaitable[Any]) -> Any:
        """Return the result of a request, or ``None`` if it failed and the extender is ignorable."""
        try:
            return await request
        except ExtenderError as error:
            if not client.spec.ignorable:
                raise
            log.warning("Ignored a failure of scheduler extender %s: %s", client.spec.url_prefix, error)
            return None

    async def _filter(self, client: ExtenderClient, pod: Pod, names: Sequence[str]) -> Any:
        answer = await client.post(client.spec.filter_verb, await self._arguments(client, pod, names))
        return read_filter_answer(answer, names, names_only=client.spec.node_cache_capable)

    async def _scores(self, client: ExtenderClient, pod: Pod, names: Sequence[str]) -> dict[str, int]:
        try:
            answer = await client.post(client.spec.prioritize_verb, await self._arguments(client, pod, names))
            found = read_priorities(answer, names)
        except ExtenderError as error:
            log.warning("Ignored the scores of scheduler extender %s: %s", client.spec.url_prefix, error)
            return {}
        return {name: score * client.spec.weight * self._scale for name, score in found.items()}

    async def _victims(self, client: ExtenderClient, pod: Pod, proposed: Mapping[str, Sequence[Pod]]) -> Any:
        body: dict[str, Any] = {"Pod": await self._objects.pod(pod)}
        if client.spec.node_cache_capable:
            body["NodeNameToMetaVictims"] = {
                name: {"Pods": [{"UID": victim.uid} for victim in victims], "NumPDBViolations": 0}
                for name, victims in proposed.items()
            }
        else:
            body["NodeNameToVictims"] = {
                name: {"Pods": [await self._objects.pod(victim) for victim in victims], "NumPDBViolations": 0}
                for name, victims in proposed.items()
            }
        return read_victims(await client.post(client.spec.preempt_verb, body), proposed)

    async def _arguments(self, client: ExtenderClient, pod: Pod, names: Sequence[str]) -> dict[str, Any]:
        body: dict[str, Any] = {"Pod": await self._objects.pod(pod)}
        if client.spec.node_cache_capable:
            return body | {"NodeNames": list(names)}
        nodes = await self._objects.nodes(names)
        return body | {"Nodes": {"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": nodes}}
