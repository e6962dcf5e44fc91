"""The command line of each component: one small function each, all of them pure.

Facts behind the flags: kube-apiserver needs ``--client-ca-file`` because it fills
``kube-system/extension-apiserver-authentication``, without which the controller-manager and the scheduler exit. It
advertises no endpoint (``--endpoint-reconciler-type=none``), for loopback is not allowed as one. kwok needs its stage
files, else it plays nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

import trimtab
from trimtab import __version__
from trimtab.kube.errors import InputError
from trimtab.local.certificates import SERVICE_NETWORK, Keys
from trimtab.local.nodes import SILENT
from trimtab.local.versions import (
    APISERVER,
    CONTROLLER_MANAGER,
    DEFAULT_VERSION,
    ETCD,
    KWOK,
    MACHINE_CONTROLLER,
    SCHEDULER,
)

PORTS: Final = (ETCD, "etcd-peer", APISERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK, MACHINE_CONTROLLER)
"""What needs a port of its own."""

PORTS_OF: Final = {ETCD: (ETCD, "etcd-peer")}
"""Which ports a component listens on, where it is not just its own."""

DEFAULT_COMPONENTS: Final = (ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK)
"""What runs unless more or less is asked for."""

COMPONENTS: Final = (*DEFAULT_COMPONENTS, MACHINE_CONTROLLER)
"""All, in the order of starting; stopping goes the other way round."""


STAGES: Final = (
    "node-initialize.yaml",
    "node-heartbeat-with-lease.yaml",
    "pod-ready.yaml",
    "pod-complete.yaml",
    "pod-delete.yaml",
)
"""kwok's stage files: what it does with nodes and pods. Its *chaos* stages, which break things, are not among them."""


_NO_NODE_LIFECYCLE: Final = "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller"
"""Both: the second alone does nothing, for it asks an index that the first one makes."""


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """What a cluster is made of. Kept in its record: a later ``up`` without settings keeps them.

    Attributes:
        version: Kubernetes version, a key of :data:`trimtab.local.versions.RELEASES`.
        components: which to run; etcd and kube-apiserver always belong to it.
        apiserver_args: further flags, after ours, so that they win (``--audit-log-path=…``).
        controller_manager_args: likewise (``--controllers=*,-node-lifecycle-controller``).
        scheduler_args: likewise.
        kwok_args: likewise.
        etcd_args: likewise.
        for_load: made for hundreds of thousands of objects: no flow control in the API server, a bigger etcd, rarer
            node leases, and pods are played by kwok only where the scenario leaves that to it.
        node_lifecycle: whether kube-controller-manager taints nodes and ends pods on tainted ones. Off, that is left to
            trimtab (TaintManager, mode Own); until it runs new nodes keep the API server's taint not-ready:NoSchedule.
        fsync: whether etcd waits for the disk. Off: a power cut may cost the data, and everything is much faster.
    """

    version: str = DEFAULT_VERSION
    components: tuple[str, ...] = DEFAULT_COMPONENTS
    apiserver_args: tuple[str, ...] = ()
    controller_manager_args: tuple[str, ...] = ()
    scheduler_args: tuple[str, ...] = ()
    kwok_args: tuple[str, ...] = ()
    etcd_args: tuple[str, ...] = ()
    for_load: bool = False
    node_lifecycle: bool = True
    fsync: bool = False

    def check(self) -> None:
        """Refuse what can't run.

        Raises:
            InputError: an unknown component, or one without what it needs.
        """
        for component in self.components:
            if component not in COMPONENTS:
                raise InputError(f"no component {component!r}; there are {', '.join(COMPONENTS)}", field="components")
        for component in (ETCD, APISERVER):
            if component not in self.components:
                raise InputError(f"{component} is missing; no cluster runs without it", field="components")

    @property
    def binaries(self) -> tuple[str, ...]:
        """The components that are binaries."""
        return tuple(component for component in self.components if component != MACHINE_CONTROLLER)

    @property
    def untaints_nodes(self) -> bool:
        """Whether kube-controller-manager's node-lifecycle controller runs, which alone removes not-ready taints."""
        given = " ".join(self.controller_manager_args)
        theirs = self.node_lifecycle and "-node-lifecycle-controller" not in given
        return CONTROLLER_MANAGER in self.components and theirs


class Layout(Struct, frozen=True):
    """Where one cluster's files and ports are."""

    directory: Path
    ports: dict[str, int]

    @property
    def keys(self) -> Keys:
        """Certificates, keys and tokens."""
        return Keys(directory=self.directory / "keys")

    @property
    def stages(self) -> Path:
        """Where kwok's stage files are."""
        return self.directory / "stages"

    @property
    def etcd(self) -> str:
        """The URL of etcd."""
        return f"http://127.0.0.1:{self.ports[ETCD]}"

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://127.0.0.1:{self.ports[APISERVER]}"

    def kubeconfig(self, user: str = "admin") -> Path:
        """The kubeconfig of the admin or of a component."""
        return self.directory / ("kubeconfig" if user == "admin" else f"{user}.kubeconfig")

    def log(self, component: str) -> Path:
        """Where the component's output goes."""
        return self.directory / "logs" / f"{component}.log"


def etcd(layout: Layout, settings: Settings) -> list[str]:
    """etcd: one member, plain HTTP on loopback."""
    client = layout.etcd
    peer = f"http://127.0.0.1:{layout.ports['etcd-peer']}"
    return [
        f"--data-dir={layout.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--log-level=warn",
        "--quota-backend-bytes=8589934592",  # the default of 2 GB ends at some 300,000 pods with their history
        *(() if settings.fsync else ("--unsafe-no-fsync",)),
        *settings.etcd_args,
    ]


def apiserver(layout: Layout, settings: Settings) -> list[str]:
    """kube-apiserver: TLS, bearer tokens, RBAC."""
    keys = layout.keys
    load = ("--max-requests-inflight=0", "--max-mutating-requests-inflight=0", "--enable-priority-and-fairness=false")
    accounts = CONTROLLER_MANAGER in settings.components
    return [
        f"--etcd-servers={layout.etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--secure-port={layout.ports[APISERVER]}",
        f"--tls-cert-file={keys.serving}",
        f"--tls-private-key-file={keys.serving_key}",
        f"--client-ca-file={keys.ca}",
        f"--token-auth-file={keys.tokens}",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={keys.service_account_key}",
        f"--service-account-signing-key-file={keys.service_account_key}",
        # Without a controller-manager nobody makes the service accounts that the plugin would look for.
        *(() if accounts else ("--disable-admission-plugins=ServiceAccount",)),
        *(load if settings.for_load else ()),
        *settings.apiserver_args,
    ]


def controller_manager(layout: Layout, settings: Settings) -> list[str]:
    """kube-controller-manager: each controller under its own service account, as in a real cluster."""
    keys = layout.keys
    # kwok renews a lease after a quarter of its duration; late on a small machine, and that must not make NotReady.
    load = ("--node-monitor-grace-period=400s", "--concurrent-gc-syncs=40", "--concurrent-replicaset-syncs=20")
    return [
        *_client(layout, CONTROLLER_MANAGER),
        f"--service-account-private-key-file={keys.service_account_key}",
        f"--root-ca-file={keys.ca}",
        f"--cluster-signing-cert-file={keys.ca}",
        f"--cluster-signing-key-file={keys.ca_key}",
        "--use-service-account-credentials=true",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        *(load if settings.for_load else ()),
        *(() if settings.node_lifecycle else (_NO_NODE_LIFECYCLE,)),
        *settings.controller_manager_args,
    ]


def scheduler(layout: Layout, settings: Settings) -> list[str]:
    """kube-scheduler, with a client fast enough not to be what is measured."""
    return [*_client(layout, SCHEDULER), "--kube-api-qps=5000", "--kube-api-burst=10000", *settings.scheduler_args]


def _client(layout: Layout, component: str) -> list[str]:
    kubeconfig = layout.kubeconfig(component)
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports[component]}",
        f"--tls-cert-file={layout.keys.serving}",
        f"--tls-private-key-file={layout.keys.serving_key}",
    ]


def kwok(layout: Layout, settings: Settings) -> list[str]:
    """kwok: plays the kubelets of all nodes that are not to be silent; its stage files lie in ``stages/``.

    A node that gets the label leaves the watch, and kwok renews its Lease no more and lets its pods be.
    """
    return [
        f"--kubeconfig={layout.kubeconfig(KWOK)}",
        f"--manage-nodes-with-label-selector=!{SILENT}",
        f"--node-lease-duration-seconds={800 if settings.for_load else 40}",
        f"--server-address=127.0.0.1:{layout.ports[KWOK]}",
        *(f"--config={layout.stages / stage}" for stage in STAGES),
        *settings.kwok_args,
    ]


def machine_controller(layout: Layout, settings: Settings) -> list[str]:
    """Our machine controller: a module of ours, with kwok's rights, as it plays what kwok plays a part of."""
    del settings
    return ["-m", "trimtab.local.machines", str(layout.kubeconfig(KWOK)), str(layout.ports[MACHINE_CONTROLLER])]


_ARGUMENTS: Final = {
    ETCD: etcd,
    APISERVER: apiserver,
    CONTROLLER_MANAGER: controller_manager,
    SCHEDULER: scheduler,
    KWOK: kwok,
    MACHINE_CONTROLLER: machine_controller,
}


class Launch(Struct, frozen=True):
    """How a component is started.

    Attributes:
        argv: the whole command line.
        version: of the binary; ``""`` where the caller brought it.
        environment: variables that it needs.
    """

    argv: tuple[str, ...]
    version: str
    environment: dict[str, str] = {}


def launch(component: str, *, binary: Path, version: str, layout: Layout, settings: Settings) -> Launch:
    """How to start a component of this cluster."""
    return Launch(
        argv=(str(binary), *_ARGUMENTS[component](layout, settings)),
        version=version,
    )


def launch_machine_controller(layout: Layout, settings: Settings) -> Launch:
    """How to start our machine controller: this very package, in this very Python."""
    own = launch(MACHINE_CONTROLLER, binary=Path(sys.executable), version=__version__, layout=layout, settings=settings)
    return replace(own, environment={"PYTHONPATH": str(Path(trimtab.__file__).parents[1])})


def health(component: str, layout: Layout) -> str:
    """The URL that answers 200 when the component does its work."""
    port = layout.ports[component]
    if component == ETCD:
        return f"{layout.etcd}/health"
    if component in (KWOK, MACHINE_CONTROLLER):
        return f"http://127.0.0.1:{port}/{'readyz' if component == KWOK else 'healthz'}"
    return f"https://127.0.0.1:{port}/{'readyz' if component == APISERVER else 'healthz'}"
