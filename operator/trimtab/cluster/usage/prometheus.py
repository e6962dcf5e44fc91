"""Reads usage from Prometheus or a compatible server (Thanos, Mimir, VictoriaMetrics) with instant queries.

The server and its credentials are configured by the operator's administrator and never by a policy. Otherwise, anyone
who can write policies could send the operator's token to any server, or probe the cluster's network.
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
from trimtab.cluster.usage.measurement import FULL_SHARE, Usage, UsageAmounts
from trimtab.kube.api import ApiError, Unreachable
from trimtab.kube.connection.config import ANONYMOUS, Login, ServerConfig, is_loopback, proxy_for
from trimtab.kube.connection.transport import Transport
from trimtab.kube.errors import InputError

log = logging.getLogger(__name__)

TIMEOUT: Final = 30.0
"""Timeout of one query in seconds. It is also sent to Prometheus, so that the server aborts the query as well."""

LARGEST: Final = 64 * 2**20
"""Maximum size of a response in bytes. A response with 150,000 pods and two labels each is a third of this size."""

TOLERANCE: Final = 0.05
"""Shares that are below 0 or above 1 by at most this amount are treated as 0 or 1.

``rate`` extrapolates, so the value of an idle node may be slightly negative.
"""


class QueryFailed(Exception):
    """A query returned no usable result. The message contains the reason."""


class Sample(Struct, frozen=True):
    """One series of a query result: its labels, and the time and value of its sample.

    The value is a string, because it can be NaN or Inf.
    """

    metric: dict[str, str] = {}
    value: tuple[float, str] | None = None


class _Data(Struct, frozen=True, rename="camel"):
    result_type: str = ""
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _Response(Struct, frozen=True):
    status: str = ""
    data: _Data = _Data()
    warnings: tuple[str, ...] | None = None


class PrometheusSettings(Struct, frozen=True):
    """The operator's settings for the Prometheus server.

    Attributes:
        url: the base URL without ``/api/v1``, as in a Grafana data source.
        token_file: the file with a bearer token, which is reread when it changes, or ``""`` for no token.
        ca_file: the PEM file with CA certificates, or ``""`` for those of the system.
    """

    url: str
    token_file: str = ""
    ca_file: str = ""

    def server(self) -> ServerConfig:
        """Return the connection settings.

        Raises:
            InputError: the settings are invalid, or a token would be sent unencrypted.
        """
        url = _parse_url(self.url)
        if self.token_file and url.scheme == "http" and not is_loopback(url.hostname or ""):
            raise InputError("a token must not be sent unencrypted: use an https URL", source="--prometheus-token-file")
        token = _read(self.token_file, "--prometheus-token-file").decode("utf-8", "replace").strip()
        if self.token_file and not (token and token.isprintable()):
            raise InputError(f"{self.token_file} contains no token", source="--prometheus-token-file")
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
    """A client for a Prometheus server. Use it as an async context manager.

    Args:
        config: the connection settings (:meth:`PrometheusSettings.server`).

    Raises:
        InputError: the CA file is invalid.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._transport = Transport(config, connections=4)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._transport.close()

    async def query(self, promql: str, *, at: float | None = None) -> list[Sample]:
        """Run an instant query, and return the series of the result.

        Args:
            promql: the query.
            at: the evaluation time in seconds since the epoch, or ``None`` for the server's current time.

        Raises:
            QueryFailed: the server does not respond, or responds with an error, with too much data, or with a result
                that is not an instant vector.
        """
        params = {"query": promql, "timeout": f"{TIMEOUT:g}s"} | ({} if at is None else {"time": f"{at:.3f}"})
        try:
            async with asyncio.timeout(TIMEOUT):
                body = await self._body(params)
        except ApiError as error:
            raise QueryFailed(error.message) from error
        except TimeoutError as error:
            raise QueryFailed(f"no response within {TIMEOUT:g} s") from error
        except (Unreachable, ValueError) as error:  # ValueError: the resolver rejects the host name
            raise QueryFailed(str(error)) from error
        return await asyncio.to_thread(_samples, body)

    async def _body(self, params: Mapping[str, str]) -> bytes:
        async with self._transport.stream("/api/v1/query", params=params, idle_timeout=TIMEOUT) as chunks:
            found, size = [], 0
            async for chunk in chunks:
                size += len(chunk)
                if size > LARGEST:
                    raise QueryFailed(
                        f"the response is larger than {LARGEST >> 20} MiB: aggregate the query by node, or by pod"
                    )
                found.append(chunk)
        return b"".join(found)


async def read_prometheus_usage(
    prometheus: Prometheus | None, wanted: PrometheusQuery, *, now: float, at: float | None = None
) -> Usage:
    """Read the usage of nodes and pods with a policy's queries.

    Failures are reported in ``problem`` instead of raised, because other strategies of the cycle may not need metrics.
    If the node query fails, the usage is empty. If the pod query fails, the pods' shares are estimated from their
    requests.

    Args:
        prometheus: the server, or ``None`` if no server is configured.
        wanted: the queries.
        now: the current time in seconds since the epoch.
        at: the evaluation time in seconds since the epoch, or ``None`` for the server's current time.
    """
    if prometheus is None:
        problem = "Prometheus is not configured: set --prometheus-url, or prometheus.url of the chart"
        return Usage(taken=now, problem=problem)
    try:
        found = await prometheus.query(wanted.query, at=at)
    except QueryFailed as error:
        return Usage(taken=now, problem=f"prometheus: query: {error}")
    nodes, remarks = await asyncio.to_thread(_nodes, found, wanted.node_label)
    if not nodes and not remarks:
        label = f" with the label {wanted.node_label}" if found else ""
        return Usage(taken=now, problem=f"prometheus: query: the result has no series{label}")
    pods: dict[str, UsageAmounts] = {}
    problem = ""
    if wanted.pod_query is not None:
        try:
            pods, problem = await asyncio.to_thread(_pods, await prometheus.query(wanted.pod_query, at=at))
        except QueryFailed as error:
            problem = str(error)
    problem = f"prometheus: podQuery: {problem}" if problem else ""
    return Usage(taken=now, nodes=nodes, pods=pods, problem=problem, remarks=remarks)


def _samples(body: bytes) -> list[Sample]:
    try:
        answer = msgspec.json.decode(body, type=_Response)
        kind = answer.data.result_type
        if answer.status != "success" or not kind:
            raise QueryFailed("this is not a response of Prometheus: is the URL correct?")
        if kind != "vector":
            raise QueryFailed(f"the result is a {kind}, but must be an instant vector (one value per series)")
        for warning in answer.warnings or ():
            log.warning("Prometheus returned a warning: %s", warning)
        return msgspec.json.decode(answer.data.result, type=list[Sample])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise QueryFailed("this is not a response of Prometheus: is the URL correct?") from error


def _nodes(samples: Sequence[Sample], label: str) -> tuple[dict[str, UsageAmounts], dict[str, str]]:
    """Return the shares by node name, and for nodes whose samples are unusable, the reason."""
    named = [(sample.metric[label], sample) for sample in samples if sample.metric.get(label)]
    numbers = Counter(name for name, _ in named)
    nodes: dict[str, UsageAmounts] = {}
    remarks: dict[str, str] = {}
    for name, sample in named:
        share = _share(sample)
        if numbers[name] > 1:
            remarks[name] = f"the query returns {numbers[name]} series for it"
        elif share is None:
            remarks[name] = f"the query returns {_value_text(sample)} for it, which is not between 0 and 1"
        else:
            nodes[name] = {METRIC_RESOURCE: share}
    return nodes, remarks


def _pods(samples: Iterable[Sample]) -> tuple[dict[str, UsageAmounts], str]:
    """Return the shares by pod, and what is wrong with the samples of omitted pods (``""`` if nothing is wrong)."""
    pods: dict[str, UsageAmounts] = {}
    seen: set[str] = set()
    twice: set[str] = set()
    odd: set[str] = set()
    for sample in samples:
        namespace, name = sample.metric.get("namespace"), sample.metric.get("pod")
        if not namespace or not name:
            continue  # cgroups above pods have no such labels
        key, share = f"{namespace}/{name}", _share(sample)
        (twice if key in seen else seen).add(key)
        if share is None:
            odd.add(key)
        else:
            pods[key] = {METRIC_RESOURCE: share}
    for key in twice | odd:
        pods.pop(key, None)
    if twice:
        return (
            pods,
            f"the query returns several series for {min(twice)} and {len(twice) - 1} other pods: aggregate them",
        )
    if odd:
        return (
            pods,
            f"the query returns values that are not between 0 and 1 for {min(odd)} and {len(odd) - 1} other pods",
        )
    return pods, "" if seen else "the result has no series with the labels namespace and pod"


def _share(sample: Sample) -> int | None:
    """Return a sample's value times :data:`FULL_SHARE`, or ``None`` if the value is not between 0 and 1."""
    try:
        value = float(sample.value[1]) if sample.value is not None else math.nan
    except ValueError:
        return None
    if not -TOLERANCE <= value <= 1 + TOLERANCE:  # also rejects NaN
        return None
    return round(min(max(value, 0.0), 1.0) * FULL_SHARE)


def _value_text(sample: Sample) -> str:
    return "a histogram" if sample.value is None else sample.value[1][:32]


def _parse_url(text: str) -> Any:
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError as error:
        raise InputError(f"{text!r} is not a URL: {error}", source="--prometheus-url") from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise InputError(f"{text!r} is not an http or https URL", source="--prometheus-url")
    if url.username or url.password or url.query or url.fragment:
        raise InputError(
            "must not have a user, query or fragment; configure a token with --prometheus-token-file",
            source="--prometheus-url",
        )
    return url


def _read(file: str, option: str) -> bytes:
    try:
        return Path(file).read_bytes() if file else b""
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}", source=option) from None
