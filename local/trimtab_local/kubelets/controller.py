"""Simulates the kubelets of all nodes as far as eviction is concerned.

For each node, the controller

1. listens on a loopback address of the node, and writes the address and the port to the node's status;
2. measures at the interval of the scenario;
3. kills a pod if a hard threshold of the kubelet is met (phase ``Failed``, reason ``Evicted``);
4. writes the kubelet's pressure conditions.

kwok keeps the addresses of nodes, and writes the port that it is started with.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from trimtab.api.scalars import parse_duration
from trimtab.kube.api import Api, ApiError, Conflict, NotFound, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Node, Pod
from trimtab.kube.resources import NODES, PODS
from trimtab.kube.verbs import STRATEGIC_PATCH
from trimtab.kube.watching.informer import Informer, ServerAbilities
from trimtab.kube.watching.store import Store
from trimtab_local.kubelets.scenario import Scenario, read_scenario
from trimtab_local.kubelets.server import Kubelet, Server
from trimtab_local.kubelets.summary import (
    Crossed,
    Measurement,
    condition,
    crossed,
    killed_status,
    measure,
    rfc3339,
    summary_of,
    victim_of,
)
from trimtab_local.nodes import SILENT, loopback_address

logger = logging.getLogger(__name__)

PERIOD: Final = 0.25
"""Seconds between two checks of which kubelets must measure, and of whether the file changed."""


class Kill(Struct, frozen=True):
    """A pod that a simulated kubelet killed."""

    time: str
    node: str
    pod: str
    uid: str
    signal: str
    available: int
    threshold: int


class ScenarioFile:
    """A scenario file that is read again when it changes. An invalid file is reported and has no effect."""

    def __init__(self, path: Path | None) -> None:
        """Read the file.

        Args:
            path: the file. ``None`` is an empty scenario.

        Raises:
            InputError: the file is invalid.
        """
        self._path = path
        self._read_at = self._modified()
        self.scenario = Scenario() if path is None else read_scenario(path)

    def refresh(self) -> bool:
        """Read the file again if it has changed, and return whether the scenario changed."""
        modified = self._modified()
        if self._path is None or modified == self._read_at:
            return False
        self._read_at = modified
        try:
            self.scenario = read_scenario(self._path)
        except InputError as error:
            logger.warning("The scenario remains as it was: %s", error)
            return False
        logger.info("Read %s", self._path)
        return True

    def _modified(self) -> tuple[int, int]:
        try:
            found = self._path.stat() if self._path is not None else None
        except OSError:
            return 0, 0
        return (found.st_mtime_ns, found.st_ino) if found is not None else (0, 0)


class _Simulated:
    """A simulated kubelet: its last measurement, the pods that it kills, and the conditions that it reported."""

    def __init__(self, kubelet: Kubelet) -> None:
        self.kubelet = kubelet
        self.measured: Measurement | None = None
        self.killing: set[str] = set()
        self.last_met: dict[str, float] = {}
        self.reported: dict[str, bool] = {}


class Controller:
    """Simulates the kubelets. Run it as a task."""

    def __init__(self, api: Api, server: Server, file: ScenarioFile, *, port: int, clock: Clock = SYSTEM_CLOCK) -> None:
        """Initialize the controller. No request is sent before :meth:`run`.

        Args:
            api: the API server.
            server: serves the summaries.
            file: the scenario.
            port: the port of the server, for the nodes' status.
            clock: the clock.
        """
        self._api = api
        self._server = server
        self._file = file
        self._port = port
        self._clock = clock
        self._nodes: Store[Node] = Store(clock=clock)
        self._pods: Store[Pod] = Store(clock=clock)
        self._on_node = self._pods.index(lambda pod: pod.node or None)
        self._simulated: dict[str, _Simulated] = {}
        self._registered: set[str] = set()
        self.kills: list[Kill] = []
        abilities = ServerAbilities()
        self._informers: tuple[Informer[Any], ...] = (
            Informer(api, NODES, self._nodes, abilities=abilities, clock=clock),
            Informer(api, PODS, self._pods, abilities=abilities, clock=clock),
        )

    @property
    def synced(self) -> bool:
        """Return whether all caches have synced and all kubelets listen."""
        return all(informer.store.synced for informer in self._informers) and len(self._simulated) >= len(self._nodes)

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run(), name=f"watch {informer.resource.plural}")
            for informer in self._informers:
                await informer.synced()
            group.create_task(self._housekeep(), name="housekeeping")

    async def _housekeep(self) -> None:
        while True:
            changed = self._file.refresh()
            await self._track_nodes()
            now = self._clock.now()
            for simulated in list(self._simulated.values()):
                try:
                    await self._sync(simulated, changed, now)
                except (Conflict, NotFound):
                    logger.debug("Node %s or a pod on it changed", simulated.kubelet.node)
                except (ApiError, Unreachable) as error:
                    logger.warning("Node %s: %s", simulated.kubelet.node, error)
            await self._clock.sleep(PERIOD)

    async def _track_nodes(self) -> None:
        """Listen for new nodes, and stop for nodes that were deleted."""
        for name in [name for name in self._simulated if self._nodes.get(name) is None]:
            await self._server.remove(self._simulated.pop(name).kubelet)
        for node in list(self._nodes):
            if node.name in self._simulated:
                continue
            simulated = _Simulated(
                Kubelet(node.name, loopback_address(node.name), functools.partial(self._summary, node.name))
            )
            simulated.kubelet.fault = self._file.scenario.fault(node)
            await self._server.add(simulated.kubelet)
            self._simulated[node.name] = simulated

    def _summary(self, name: str, only_cpu_and_memory: bool) -> dict[str, Any]:
        simulated = self._simulated[name]
        measured = simulated.measured or self._measure(simulated, self._clock.now())
        return summary_of(measured, only_cpu_and_memory=only_cpu_and_memory)

    def _measure(self, simulated: _Simulated, now: float) -> Measurement:
        node = self._nodes.get(simulated.kubelet.node)
        assert node is not None
        pods = self._on_node.items(node.name)
        simulated.measured = measure(node, [pod for _, pod in pods], self._file.scenario, now)
        return simulated.measured

    async def _sync(self, simulated: _Simulated, changed: bool, now: float) -> None:
        """Measure, kill and report for one node, if that is due."""
        kubelet = simulated.kubelet
        node = self._nodes.get(kubelet.node)
        if node is None:
            return
        fault = self._file.scenario.fault(node)
        if fault != kubelet.fault:
            other = "OtherCertificate" in (fault, kubelet.fault)
            kubelet.fault = fault
            if other:
                await self._server.remove(kubelet)
                await self._server.add(kubelet)
        kubelet.silent = SILENT in node.labels
        if kubelet.silent:
            return
        if node.uid not in self._registered:
            await self._register(node)
        entry = self._file.scenario.node(node)
        measured = simulated.measured
        due = measured is None or changed or now - measured.at >= parse_duration(entry.measure_every)
        if not due or (fault == "Frozen" and measured is not None):
            return
        measured = self._measure(simulated, now)
        met = crossed(measured, entry.thresholds())
        if met and entry.kills:
            await self._kill(simulated, measured, met[0], now)
        await self._report(simulated, met, now, transition=parse_duration(entry.transition_period))

    async def _register(self, node: Node) -> None:
        """Write the address and the port of the kubelet to the status of a node."""
        addresses = [
            {"type": "InternalIP", "address": loopback_address(node.name)},
            {"type": "Hostname", "address": node.name},
        ]
        status = {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}}}
        await self._patch_node(node.name, status)
        self._registered.add(node.uid)

    async def _kill(self, simulated: _Simulated, measured: Measurement, threshold: Crossed, now: float) -> None:
        """Kill the first pod for a threshold, unless the pod killed before it is still in the cache."""
        simulated.killing &= {use.pod.uid for use in measured.pods}
        use = victim_of(measured, threshold)
        if simulated.killing or use is None:
            return
        pod = use.pod
        path = PODS.path(pod.name, namespace=pod.namespace, subresource="status")
        body = {"metadata": {"uid": pod.uid}, "status": killed_status(use, threshold, now)}
        await self._api.request("PATCH", path, body=body, content_type=STRATEGIC_PATCH)
        simulated.killing.add(pod.uid)
        self.kills.append(
            Kill(rfc3339(now), measured.node, pod.key, pod.uid, threshold.signal, threshold.available, threshold.limit)
        )
        logger.warning(
            "Killed pod %s on node %s: %s %d is below %d",
            pod.key,
            measured.node,
            threshold.signal,
            threshold.available,
            threshold.limit,
        )

    async def _report(self, simulated: _Simulated, met: list[Crossed], now: float, *, transition: float) -> None:
        """Write the pressure conditions that changed."""
        for threshold in met:
            simulated.last_met[threshold.condition] = now
        conditions = []
        for type_, last in simulated.last_met.items():
            holds = now - last < transition
            if simulated.reported.get(type_, False) != holds:
                conditions.append(condition(type_, met=holds, now=now))
        if conditions:
            await self._patch_node(simulated.kubelet.node, {"conditions": conditions})
            simulated.reported |= {each["type"]: each["status"] == "True" for each in conditions}

    async def _patch_node(self, name: str, status: dict[str, Any]) -> None:
        path = NODES.path(name, subresource="status")
        await self._api.request("PATCH", path, body={"status": status}, content_type=STRATEGIC_PATCH)
