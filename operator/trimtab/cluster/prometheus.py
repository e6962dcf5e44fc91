"""Reading real use from Prometheus, or what speaks as it does (Thanos, Mimir, VictoriaMetrics): a query at one instant.

Where the server is and how to log in there is said by whoever runs trimtab and never by a policy: else whoever may
write policies could have the operator's token sent anywhere, or have it look around in the cluster's network.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from trimtab.api.strategies import METRIC_RESOURCE, PrometheusQuery
from trimtab.cluster.usage import WHOLE, Usage, Use
from trimtab.kube.api import ApiError, Unreachable
from trimtab.kube.connection.config import ANONYMOUS, Login, ServerConfig
from trimtab.kube.connection.proxy import is_loopback, proxy_for
from trimtab.kube.connection.transport import Transport
from trimtab.kube.errors import InputError

log = logging.getLogger(__name__)

TIMEOUT: Final = 30.0
"""Seconds for one query; Prometheus is told as well, so that it does not go on for nobody."""

LARGEST: Final = 64 * 2**20
"""Bytes of an answer: 150,000 pods with two labels each take a third of it."""

BEYOND: Final = 0.05
"""How far a share may be below 0 or above 1 and still be taken for that: ``rate`` extrapolates, so that a node of which
all is idle comes out at a little less than nothing."""


class QueryFailed(Exception):
    """A query has no answer that can be used; says why, in words."""


class Sample(Struct, frozen=True):
    """One series of an answer: its labels, and time and value, which is text for the sake of NaN and Inf."""

    metric: dict[str, str] = {}
    value: tuple[float, str] | None = None


class _Data(Struct, frozen=True, rename="camel"):
    result_type: str = ""
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _Answer(Struct, frozen=True):
    status: str = ""
    data: _Data = _Data()
    warnings: tuple[str, ...] | None = None


class PrometheusSettings(Struct, frozen=True):
    """Where Prometheus is, as a user says it.

    Attributes:
        url: as Grafana wants it: without ``/api/v1``.
        token_file: a bearer token, read again as it is renewed; ``""`` for none.
        ca_file: the authorities to trust as PEM; ``""`` for the system's.
    """

    url: str
    token_file: str = ""
    ca_file: str = ""

    def server(self) -> ServerConfig:
        """The server that the settings mean.

        Raises:
            InputError: they mean none, or a token would travel in the clear.
        """
        url = _parsed(self.url)
        if self.token_file and url.scheme == "http" and not is_loopback(url.hostname or ""):
            raise InputError("a token must not travel unencrypted: give an https URL", source="--prometheus-token-file")
        token = _read(self.token_file, "--prometheus-token-file").decode("utf-8", "replace").strip()
        if self.token_file and not (token and token.isprintable()):
            raise InputError(f"{self.token_file} holds no token", source="--prometheus-token-file")
        server = self.url.rstrip("/")
        return ServerConfig(
            server=server,
            source=f"--prometheus-url {server}",
            ca=_read(self.ca_file, "--prometheus-ca-file"),
            proxy=proxy_for(server),
            login=Login(authorization=f"Bearer {token}") if token else ANONYMOUS,
            token_file=self.token_file,
        )


class Prometheus:
    """A server to ask. Use it as an async context manager.

    Args:
        config: which one; see :meth:`PrometheusSettings.server`.

    Raises:
        InputError: the certificate authority is not usable.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._transport = Transport(config, connections=4)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._transport.close()

    async def ask(self, query: str, *, at: float | None = None) -> list[Sample]:
        """The series that a query gives.

        Args:
            query: PromQL.
            at: seconds since the epoch to ask for; ``None`` for the server's own now.

        Raises:
            QueryFailed: there is no answer, an error, one that is too large, or no instant vector.
        """
        params = {"query": query, "timeout": f"{TIMEOUT:g}s"} | ({} if at is None else {"time": f"{at:.3f}"})
        try:
            async with asyncio.timeout(TIMEOUT):
                body = await self._body(params)
        except ApiError as error:
            raise QueryFailed(error.message) from error
        except TimeoutError as error:
            raise QueryFailed(f"no answer within {TIMEOUT:g} s") from error
        except (Unreachable, ValueError) as error:  # the latter of a host's name that no resolver takes
            raise QueryFailed(str(error)) from error
        return await asyncio.to_thread(_samples, body)

    async def _body(self, params: Mapping[str, str]) -> bytes:
        async with self._transport.stream("/api/v1/query", params=params, idle_timeout=TIMEOUT) as chunks:
            found, size = [], 0
            async for chunk in chunks:
                size += len(chunk)
                if size > LARGEST:
                    raise QueryFailed(f"the answer is larger than {LARGEST >> 20} MiB: aggregate by node, or by pod")
                found.append(chunk)
        return b"".join(found)


async def read_shares(
    prometheus: Prometheus | None, wanted: PrometheusQuery, *, now: float, at: float | None = None
) -> Usage:
    """What nodes and pods use, as a policy's queries say it.

    Real use is no reason to end a cycle whose other strategies need none: what cannot be read is told as the value's
    ``problem``. Without the nodes' query nothing is known; without the pods', their parts are guessed from requests.

    Args:
        prometheus: whom to ask; ``None`` where nobody has said.
        wanted: the queries.
        now: seconds since the epoch; when it is read.
        at: seconds since the epoch to ask for; ``None`` for the server's own now.
    """
    if prometheus is None:
        told = "nobody has said where Prometheus is: --prometheus-url, or prometheus.url of the chart"
        return Usage(taken=now, problem=told)
    try:
        found = await prometheus.ask(wanted.query, at=at)
    except QueryFailed as error:
        return Usage(taken=now, problem=f"prometheus: query: {error}")
    nodes, remarks = await asyncio.to_thread(_nodes, found, wanted.node_label)
    if not nodes and not remarks:
        nameless = f" with the label {wanted.node_label}" if found else ""
        return Usage(taken=now, problem=f"prometheus: query: the answer has no series{nameless}")
    pods: dict[str, Use] = {}
    problem = ""
    if wanted.pod_query is not None:
        try:
            pods, problem = await asyncio.to_thread(_pods, await prometheus.ask(wanted.pod_query, at=at))
        except QueryFailed as error:
            problem = str(error)
    problem = f"prometheus: podQuery: {problem}" if problem else ""
    return Usage(taken=now, nodes=nodes, pods=pods, problem=problem, remarks=remarks)


def _samples(body: bytes) -> list[Sample]:
    try:
        answer = msgspec.json.decode(body, type=_Answer)
        kind = answer.data.result_type
        if answer.status != "success" or not kind:
            raise QueryFailed("the answer is none of Prometheus: is the URL right?")
        if kind != "vector":
            raise QueryFailed(f"gives a {kind} where one value for each series is wanted (an instant vector)")
        for warning in answer.warnings or ():
            log.warning("prometheus warns: %s", warning)
        return msgspec.json.decode(answer.data.result, type=list[Sample])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise QueryFailed("the answer is none of Prometheus: is the URL right?") from error


def _nodes(samples: Sequence[Sample], label: str) -> tuple[dict[str, Use], dict[str, str]]:
    """The nodes' shares, and why nodes that were told of have none."""
    named = [(sample.metric[label], sample) for sample in samples if sample.metric.get(label)]
    numbers = Counter(name for name, _ in named)
    nodes: dict[str, Use] = {}
    remarks: dict[str, str] = {}
    for name, sample in named:
        share = _share(sample)
        if numbers[name] > 1:
            remarks[name] = f"the query gives {numbers[name]} series for it"
        elif share is None:
            remarks[name] = f"the query gives {_shown(sample)} for it, which is no share from 0 to 1"
        else:
            nodes[name] = {METRIC_RESOURCE: share}
    return nodes, remarks


def _pods(samples: Iterable[Sample]) -> tuple[dict[str, Use], str]:
    """The pods' shares, and what is wrong with those that are left out."""
    pods: dict[str, Use] = {}
    seen: set[str] = set()
    twice: set[str] = set()
    odd: set[str] = set()
    for sample in samples:
        namespace, name = sample.metric.get("namespace"), sample.metric.get("pod")
        if not namespace or not name:
            continue  # the cgroups above pods have neither
        key, share = f"{namespace}/{name}", _share(sample)
        (twice if key in seen else seen).add(key)
        if share is None:
            odd.add(key)
        else:
            pods[key] = {METRIC_RESOURCE: share}
    for key in twice | odd:
        pods.pop(key, None)
    if twice:
        return pods, f"gives several series for a pod, for {min(twice)} and {len(twice) - 1} more: aggregate them"
    if odd:
        return pods, f"gives no share from 0 to 1 for {min(odd)} and {len(odd) - 1} more"
    return pods, "" if seen else "the answer has no series with the labels namespace and pod"


def _share(sample: Sample) -> int | None:
    """The value in parts of :data:`WHOLE`; ``None`` where it is no share."""
    try:
        value = float(sample.value[1]) if sample.value is not None else math.nan
    except ValueError:
        return None
    if not -BEYOND <= value <= 1 + BEYOND:  # NaN is not, either
        return None
    return round(min(max(value, 0.0), 1.0) * WHOLE)


def _shown(sample: Sample) -> str:
    return "a histogram" if sample.value is None else sample.value[1][:32]


def _parsed(text: str) -> Any:
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError as error:
        raise InputError(f"{text!r} is no URL: {error}", source="--prometheus-url") from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise InputError(f"{text!r} is no http or https URL", source="--prometheus-url")
    if url.username or url.password or url.query or url.fragment:
        raise InputError("must have no user, query or fragment; a token comes from a file", source="--prometheus-url")
    return url


def _read(file: str, option: str) -> bytes:
    try:
        return Path(file).read_bytes() if file else b""
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}", source=option) from None
