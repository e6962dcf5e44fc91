"""One local cluster: start it, look at it, reach it, stop it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from trimtab.local import files, guard, kubeconfig
from trimtab.local.binaries import Binaries, find, given_directory
from trimtab.local.certificates import make_keys
from trimtab.local.client import Client
from trimtab.local.components import (
    DEFAULT_COMPONENTS,
    PORTS,
    PORTS_OF,
    Launch,
    Layout,
    Settings,
    launch,
    launch_machine_controller,
)
from trimtab.local.errors import LocalError
from trimtab.local.furniture import await_account, await_nodes, create_nodes, release_nodes
from trimtab.local.health import PortTaken
from trimtab.local.machines import definitions
from trimtab.local.nodes import DEFAULT_NODES, numbered
from trimtab.local.paths import cluster_directory
from trimtab.local.ports import choose
from trimtab.local.processes import alive, stop
from trimtab.local.progress import Progress
from trimtab.local.record import Record, Store
from trimtab.local.status import Status, observe
from trimtab.local.supervisor import Supervisor
from trimtab.local.versions import CONTROLLER_MANAGER, KWOK, MACHINE_CONTROLLER

_ATTEMPTS: Final = 3


class LocalCluster:
    """A control plane on this machine.

    Args:
        name: which one; several may run side by side.
        directory: where its files go; ``${XDG_STATE_HOME:-~/.local/state}/trimtab/local/<name>`` unless given.
        bin_dir: directory with binaries to prefer; see :mod:`trimtab.local.binaries`.
        progress: where the steps are told.
    """

    def __init__(
        self,
        name: str = "default",
        *,
        directory: Path | None = None,
        bin_dir: Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        default = cluster_directory(name)  # also checks the name
        self.name = name
        self.directory = (directory or default).absolute()
        self._bin_dir = bin_dir
        self._progress = progress or Progress()
        self._store = Store(directory=self.directory)
        self._supervisor = Supervisor(self._store, progress=self._progress, starting=self._starting)
        self._leash: int | None = None
        self._client: Client | None = None

    def known(self) -> Record | None:
        """What was written down about the cluster, or ``None`` where there is none."""
        return self._store.read()

    def record(self) -> Record:
        """What was written down about the cluster.

        Raises:
            LocalError: there is no such cluster.
        """
        record = self._store.read()
        if record is None:
            raise LocalError(f"no local cluster {self.name!r}; start it with: trimtab local up --name {self.name}")
        return record

    @property
    def layout(self) -> Layout:
        """Its files and ports; a :class:`LocalError` where there is no such cluster, as in all that follow."""
        return Layout(directory=self.directory, ports=self.record().ports)

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self.layout.kubeconfig()

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self.layout.server

    @property
    def ca(self) -> Path:
        """The certificate to verify the API server with."""
        return self.layout.keys.ca

    @property
    def client(self) -> Client:
        """A synchronous client with the admin's rights."""
        layout = self.layout
        if self._client is None or self._client.server != layout.server:
            self._client = Client(server=layout.server, token=layout.keys.token("admin"), ca=layout.keys.ca)
        return self._client

    def service_account_token(self, namespace: str, name: str, *, seconds: int = 86_400) -> str:
        """A token of that service account (TokenRequest API), good for ``seconds``.

        Raises:
            ApiError: the account does not exist.
        """
        answer = self.client.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}},
        )
        return str(answer["status"]["token"])

    def service_account_kubeconfig(self, namespace: str, name: str, *, path: Path, seconds: int = 86_400) -> Path:
        """Write a kubeconfig to ``path`` that acts as the service account, so that its RBAC holds; return the path."""
        token = self.service_account_token(namespace, name, seconds=seconds)
        layout = self.layout
        content = kubeconfig.render(
            name=self.name, server=layout.server, ca=layout.keys.ca, token=token, user=name, namespace=namespace
        )
        kubeconfig.write(path, content)
        return path

    def status(self) -> Status:
        """Which components run, and whether they are healthy.

        Raises:
            LocalError: there is no such cluster.
        """
        return observe(self.record(), self.directory)

    def up(
        self,
        settings: Settings | None = None,
        *,
        nodes: int | None = None,
        copy: Path | None = None,
        die_with_parent: bool = False,
    ) -> Record:
        """Start the cluster, or repair it, and wait until it works.

        Args:
            settings: what it is made of; those recorded, or the defaults, unless given.
            nodes: make sure that ``node-1`` … ``node-N`` exist. Unless given, a new cluster gets three, and a cluster
                that exists keeps what it has.
            copy: a further place to write the admin's kubeconfig to.
            die_with_parent: stop the cluster when this process ends, however it ends.

        Raises:
            InputError: the settings or ``copy`` can't be used.
            LocalError: a component did not start; the message shows the end of its log.
        """
        if copy is not None:
            kubeconfig.check_target(copy.absolute(), self.name)
        known = self.known()
        wanted = settings or (Settings() if known is None else known.settings)
        wanted.check()
        given = self._binaries_directory(known)
        # Before the lock: a build takes minutes, and nobody shall have to wait for it to look or to stop.
        binaries = find(wanted.binaries, version=wanted.version, given=given, progress=self._progress)
        with self._store.lock():
            record = self._prepared(wanted, copy, given)
            if die_with_parent:
                record = self._guarded(record)
            if nodes is None and not record.furnished:
                nodes = DEFAULT_NODES if KWOK in record.settings.components else 0
            record = self._running(record, binaries, nodes or 0)
            made = {manifest["metadata"]["name"] for manifest in numbered(nodes or 0)}
            if KWOK in record.settings.components:
                await_nodes(self.client, made, untainted=record.settings.untaints_nodes)
            if CONTROLLER_MANAGER in record.settings.components and not record.furnished:
                await_account(self.client)
            record = replace(record, furnished=True)
            self._store.write(record)
        return record

    def _binaries_directory(self, known: Record | None) -> Path | None:
        """The caller's, else the one that the cluster was started with, else the environment's."""
        if self._bin_dir is None and known is not None:
            recorded = Path(known.bin_dir)
            return recorded if known.bin_dir and recorded.is_dir() else None
        return given_directory(self._bin_dir)

    def _prepared(self, settings: Settings, copy: Path | None, given: Path | None) -> Record:
        """The record to start from, on disk, with its directory and keys."""
        record = self.known() or Record(name=self.name, settings=settings, ports=choose(PORTS))
        lacking = [name for name in PORTS if name not in record.ports]  # the record may be of an older version
        ports = record.ports | choose(lacking)
        record = replace(record, settings=settings, ports=ports, bin_dir="" if given is None else str(given))
        if copy is not None and str(copy.absolute()) not in record.copies:
            record = replace(record, copies=(*record.copies, str(copy.absolute())))
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.directory / "logs").mkdir(exist_ok=True)
        self._store.write(record)
        make_keys(Layout(directory=self.directory, ports=record.ports).keys.directory)
        return record

    def _guarded(self, record: Record) -> Record:
        if self._leash is not None and record.guard is not None and alive(record.guard):
            return record
        process, self._leash = guard.launch(self.name, self.directory, log=self.directory / "logs" / "guard.log")
        record = replace(record, guard=process)
        self._store.write(record)
        return record

    def _running(self, record: Record, binaries: Binaries, count: int) -> Record:
        """All components healthy and the nodes made; other ports are tried where somebody took ours meanwhile."""
        for attempt in range(_ATTEMPTS):
            try:
                return self._supervisor.reconcile(
                    record,
                    self._launches(record, binaries),
                    served=lambda: create_nodes(self.client, count),
                )
            except PortTaken as error:
                if attempt == _ATTEMPTS - 1:
                    self._supervisor.stop(self.record(), self.record().started)
                    raise
                self._progress.say(f"{error}; choosing another")
                record = self.record()
                # What else names the port in its command line gets another one, and so starts anew as well.
                others = choose(PORTS_OF.get(error.component, (error.component,)))
                record = replace(record, ports=record.ports | others)
                self._store.write(record)
            except BaseException:
                # Whatever happened, Ctrl-C included: nothing half-started stays behind. Logs and data do.
                self._supervisor.stop(self.record(), self.record().started)
                raise
        raise AssertionError("unreachable")

    def _starting(self, component: str) -> None:
        if component == KWOK:
            release_nodes(self.client)
        if component == MACHINE_CONTROLLER:
            definitions.install(self.client)

    def _launches(self, record: Record, binaries: Binaries) -> dict[str, Launch]:
        """How to start each component; writes the files that the command lines name."""
        layout = Layout(directory=self.directory, ports=record.ports)
        files.write(layout, record, stages=binaries.stages)
        launches: dict[str, Launch] = {
            component: launch(
                component,
                binary=binaries.paths[component],
                version=binaries.versions[component],
                layout=layout,
                settings=record.settings,
            )
            for component in DEFAULT_COMPONENTS
            if component in record.settings.components
        }
        if MACHINE_CONTROLLER in record.settings.components:
            launches[MACHINE_CONTROLLER] = launch_machine_controller(layout, record.settings)
        return launches

    @contextlib.contextmanager
    def paused(self, *components: str) -> Iterator[None]:
        """Stop clients of the API server (controllers, scheduler, kwok) for a while, then start them again.

        If this process is killed meanwhile, they stay stopped, ``status`` says so, and ``up`` starts them.
        """
        with self._store.lock():
            before = self.record()
            stopped = [name for name in components if name in before.started]
            self._supervisor.stop(before, stopped)
        try:
            yield
        finally:
            with self._store.lock():
                self._supervisor.resume(self.record(), {name: before.started[name].launch for name in stopped})

    def down(self, *, keep_data: bool = False) -> bool:
        """Stop exactly what was recorded, clients before servers, and remove the cluster's files.

        Args:
            keep_data: keep the record, the keys and etcd's data, so that ``up`` continues with the same objects.

        Returns:
            Whether there was a cluster.
        """
        with self._store.lock():
            record = self._store.read()
            if record is not None:
                record = self._supervisor.stop(record, record.started)
                if record.guard is not None and record.guard.pid != os.getpid():
                    stop([record.guard], patience=5)
                self._store.write(replace(record, guard=None))
                if not keep_data:
                    files.remove(self.directory, record)
            if self._leash is not None:
                os.close(self._leash)
                self._leash = None
        return record is not None
