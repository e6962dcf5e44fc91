"""Starts, repairs, inspects and stops one local cluster."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from trimtab.kube.api import Conflict, NotFound, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.resources import NODES
from trimtab_local import LocalError, guard
from trimtab_local.binaries import Binaries, find, given_directory
from trimtab_local.certificates import make_keys
from trimtab_local.client import Client
from trimtab_local.components import (
    DEFAULT_COMPONENTS,
    PORTS,
    PORTS_OF,
    Launch,
    Layout,
    Settings,
    launch,
    launch_operator,
    launch_own,
)
from trimtab_local.files import (
    Record,
    RecordStore,
    check_kubeconfig_target,
    cluster_directory,
    remove_files,
    render_kubeconfig,
    write_files,
    write_kubeconfig,
)
from trimtab_local.handover import release_nodes, replay_pods
from trimtab_local.machines import definitions
from trimtab_local.nodes import DEFAULT_NODES, numbered, ready, reported
from trimtab_local.processes import alive, stop
from trimtab_local.progress import Progress
from trimtab_local.supervisor import PATIENCE, PortTaken, Status, Supervisor, choose_ports, observe
from trimtab_local.versions import CONTROLLER_MANAGER, KUBELET_STATS, KWOK, MACHINE_CONTROLLER, OPERATOR

_ACCOUNT: Final = "/api/v1/namespaces/default/serviceaccounts/default"


def create_nodes(client: Client, count: int) -> None:
    """Create the nodes ``node-1`` … ``node-<count>`` that do not exist. Existing nodes are unchanged."""
    for manifest in numbered(count):
        try:
            client.request("POST", NODES.path(), manifest)
        except Conflict:
            continue


def await_nodes(client: Client, names: Set[str], *, untainted: bool = True) -> None:
    """Wait until the given nodes are Ready. Other nodes are ignored.

    Args:
        client: a client of the cluster.
        names: the names of the nodes.
        untainted: whether to wait until their not-ready taints are removed, too.

    Raises:
        LocalError: some node is not Ready after two minutes.
    """
    able = ready if untainted else reported

    def hold() -> bool:
        listed = client.request("GET", NODES.path(), params={"resourceVersion": "0"})["items"]
        return names <= {live["metadata"]["name"] for live in listed if able(live)}

    if names:
        _await_condition(hold, "the nodes are not Ready")


def await_account(client: Client) -> None:
    """Wait until pods can be created in the namespace ``default``, which requires its service account.

    Raises:
        LocalError: the service account does not exist after two minutes.
    """

    def hold() -> bool:
        client.request("GET", _ACCOUNT)
        return True

    _await_condition(hold, "there is no service account default/default")


def service_account_token(client: Client, namespace: str, name: str, *, seconds: int) -> str:
    """Request a token of a service account (TokenRequest API) that is valid for ``seconds``.

    Raises:
        ApiError: the service account does not exist.
    """
    answer = client.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}},
    )
    return str(answer["status"]["token"])


def _await_condition(hold: Callable[[], bool], failure: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if hold():
                return
        except (NotFound, Unreachable):
            pass
        if time.monotonic() > deadline:
            raise LocalError(f"{failure} after {PATIENCE:.0f} s; trimtab local status shows where the logs are")
        time.sleep(0.2)


_ATTEMPTS: Final = 3


class LocalCluster:
    """A control plane on this machine.

    Args:
        name: the name of the cluster. Several clusters can run at the same time.
        directory: the directory of its files. The default is
            ``${XDG_STATE_HOME:-~/.local/state}/trimtab/local/<name>``.
        bin_dir: a directory whose binaries are preferred; see :mod:`trimtab_local.binaries`.
        progress: receives the steps.
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
        self._store = RecordStore(directory=self.directory)
        self._supervisor = Supervisor(self._store, progress=self._progress, starting=self._starting)
        self._leash: int | None = None
        self._client: Client | None = None

    def known(self) -> Record | None:
        """Return the cluster's record, or ``None`` if the cluster does not exist."""
        return self._store.read()

    def record(self) -> Record:
        """Return the cluster's record.

        Raises:
            LocalError: the cluster does not exist.
        """
        record = self._store.read()
        if record is None:
            raise LocalError(f"no local cluster {self.name!r}; start it with: trimtab local up --name {self.name}")
        return record

    @property
    def layout(self) -> Layout:
        """Return the paths of its files and its ports.

        Raises:
            LocalError: the cluster does not exist. The properties below raise it, too.
        """
        return Layout(directory=self.directory, ports=self.record().ports)

    @property
    def kubeconfig(self) -> Path:
        """Return the path of the admin's kubeconfig."""
        return self.layout.kubeconfig()

    @property
    def server(self) -> str:
        """Return the URL of the API server."""
        return self.layout.server

    @property
    def ca(self) -> Path:
        """Return the path of the CA certificate that verifies the API server."""
        return self.layout.keys.ca

    @property
    def client(self) -> Client:
        """Return a synchronous client with the admin's permissions."""
        layout = self.layout
        if self._client is None or self._client.server != layout.server:
            self._client = Client(server=layout.server, token=layout.keys.token("admin"), ca=layout.keys.ca)
        return self._client

    def service_account_token(self, namespace: str, name: str, *, seconds: int = 86_400) -> str:
        """Request a token of a service account (TokenRequest API) that is valid for ``seconds``.

        Raises:
            ApiError: the service account does not exist.
        """
        return service_account_token(self.client, namespace, name, seconds=seconds)

    def service_account_kubeconfig(self, namespace: str, name: str, *, path: Path, seconds: int = 86_400) -> Path:
        """Write a kubeconfig with a token of the service account, and return its path.

        RBAC then applies to requests with this kubeconfig.
        """
        token = self.service_account_token(namespace, name, seconds=seconds)
        layout = self.layout
        content = render_kubeconfig(
            name=self.name, server=layout.server, ca=layout.keys.ca, token=token, user=name, namespace=namespace
        )
        write_kubeconfig(path, content)
        return path

    def status(self) -> Status:
        """Return which components run and whether they are healthy.

        Raises:
            LocalError: the cluster does not exist.
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
        """Start or repair the cluster, and wait until it is healthy.

        Args:
            settings: the settings of the cluster. The default is the recorded settings, or those of a new cluster.
            nodes: the number of nodes ``node-1`` … ``node-N`` that must exist. By default, three nodes are created in a
                new cluster and none in an existing one.
            copy: another path to which the admin's kubeconfig is written.
            die_with_parent: whether to stop the cluster when this process ends for any reason.

        Raises:
            InputError: the settings or ``copy`` are invalid.
            LocalError: a component did not start. The message contains the end of its log.
        """
        if copy is not None:
            check_kubeconfig_target(copy.absolute(), self.name)
        known = self.known()
        wanted = settings or (Settings() if known is None else known.settings)
        wanted.check()
        if known is not None and wanted.version != known.settings.version:
            raise InputError(
                f"cluster {self.name} has version {known.settings.version} and keeps it, because etcd contains its "
                "objects; delete the cluster with `trimtab local down`, or use another name",
                field="version",
            )
        given = self._binaries_directory(known)
        # Before the lock: a build takes minutes, and status and down must not wait for it.
        binaries = find(wanted.binaries, version=wanted.version, given=given, progress=self._progress)
        with self._store.lock():
            record = self._prepared(wanted, copy, given)
            if die_with_parent:
                record = self._guarded(record)
            if nodes is None and not record.furnished:
                nodes = DEFAULT_NODES if KWOK in record.settings.components else 0
            former = record.started.get(KWOK)
            record = self._running(record, binaries, nodes or 0)
            if KWOK in record.settings.components and record.furnished and record.started[KWOK] != former:
                replay_pods(self.client)
            made = {manifest["metadata"]["name"] for manifest in numbered(nodes or 0)}
            if KWOK in record.settings.components:
                await_nodes(self.client, made, untainted=record.settings.untaints_nodes)
            if CONTROLLER_MANAGER in record.settings.components and not record.furnished:
                await_account(self.client)
            record = replace(record, furnished=True)
            self._store.write(record)
        return record

    def _binaries_directory(self, known: Record | None) -> Path | None:
        """Return the directory with binaries: the caller's, or else the recorded one, or else the environment's."""
        if self._bin_dir is None and known is not None:
            recorded = Path(known.bin_dir)
            return recorded if known.bin_dir and recorded.is_dir() else None
        return given_directory(self._bin_dir)

    def _prepared(self, settings: Settings, copy: Path | None, given: Path | None) -> Record:
        """Create the directory and the keys, write the initial record, and return it."""
        record = self.known() or Record(name=self.name, settings=settings, ports=choose_ports(PORTS))
        lacking = [name for name in PORTS if name not in record.ports]  # the record may be of an older version
        ports = record.ports | choose_ports(lacking)
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
        """Start all components and create the nodes.

        If another process took one of the ports, retry with other ports.
        """
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
                # Other components name the port in their command lines, so they restart as well.
                others = choose_ports(PORTS_OF.get(error.component, (error.component,)))
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
        """Return the command of each component, and write the files to which the commands refer."""
        layout = Layout(directory=self.directory, ports=record.ports)
        write_files(layout, record, stages=binaries.stages)
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
        for component in (MACHINE_CONTROLLER, KUBELET_STATS):
            if component in record.settings.components:
                launches[component] = launch_own(component, layout, record.settings)
        if OPERATOR in record.started:
            launches[OPERATOR] = record.started[OPERATOR].launch
        return launches

    @contextlib.contextmanager
    def paused(self, *components: str) -> Iterator[None]:
        """Stop the clients of the API server (controllers, scheduler, kwok) during the block, then start them again.

        If this process is killed in the block, the clients stay stopped, ``status`` reports that, and ``up`` starts
        them.
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

    def start_operator(self, kubeconfig: Path, *arguments: str) -> Path:
        """Start the operator as a process of the cluster, in place of the former one, and wait until it is ready.

        Args:
            kubeconfig: the kubeconfig of its service account.
            arguments: further arguments of ``trimtab run``.

        Returns:
            The path of its log.

        Raises:
            LocalError: the cluster does not exist, or the operator did not become ready.
        """
        with self._store.lock():
            record = self._supervisor.stop(self.record(), [OPERATOR])
            port = choose_ports([OPERATOR])
            record = replace(record, ports=record.ports | port)
            self._store.write(record)
            wanted = launch_operator(kubeconfig, port[OPERATOR], *arguments)
            try:
                self._supervisor.resume(record, {OPERATOR: wanted})
            except BaseException:
                self._supervisor.stop(self.record(), [OPERATOR])
                raise
        return self.layout.log(OPERATOR)

    def stop_operator(self) -> bool:
        """Stop the operator. Return whether :meth:`start_operator` had started one."""
        with self._store.lock():
            record = self.record()
            self._supervisor.stop(record, [OPERATOR])
        return OPERATOR in record.started

    def down(self, *, keep_data: bool = False) -> bool:
        """Stop the recorded processes, clients before servers, and remove the cluster's files.

        Args:
            keep_data: whether to keep the record, the keys and etcd's data, so that ``up`` continues with the same
                objects.

        Returns:
            Whether the cluster existed.
        """
        with self._store.lock():
            record = self._store.read()
            if record is not None:
                record = self._supervisor.stop(record, record.started)
                if record.guard is not None and record.guard.pid != os.getpid():
                    stop([record.guard], patience=5)
                self._store.write(replace(record, guard=None))
                if not keep_data:
                    remove_files(self.directory, record)
            if self._leash is not None:
                os.close(self._leash)
                self._leash = None
        return record is not None
