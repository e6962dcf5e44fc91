"""Builds the command line of each component with pure functions.

Some flags have reasons that are not obvious. kube-apiserver needs ``--client-ca-file``, because it then creates
``kube-system/extension-apiserver-authentication``, without which the controller-manager and the scheduler exit. It
advertises no endpoint (``--endpoint-reconciler-type=none``), because a loopback address is not allowed as an endpoint.
kwok simulates nothing without its stage files.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

import trimtab
from trimtab.kube.errors import InputError
from trimtab_local import __version__
from trimtab_local.certificates import FRONT_PROXY, SERVICE_NETWORK, Keys
from trimtab_local.nodes import SILENT
from trimtab_local.versions import (
    APISERVER,
    CONTROLLER_MANAGER,
    DEFAULT_VERSION,
    ETCD,
    KUBELET_STATS,
    KWOK,
    MACHINE_CONTROLLER,
    OPERATOR,
    SCHEDULER,
)

PORTS: Final = (ETCD, "etcd-peer", APISERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK, MACHINE_CONTROLLER, KUBELET_STATS)
"""The names of all ports."""

PORTS_OF: Final = {ETCD: (ETCD, "etcd-peer")}
"""The ports of components that listen on more or other ports than the one with their name."""

DEFAULT_COMPONENTS: Final = (ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK)
"""The components that run by default."""

WITH_MACHINES: Final = (*DEFAULT_COMPONENTS, MACHINE_CONTROLLER)
"""The components of a cluster with machines."""

COMPONENTS: Final = (*WITH_MACHINES, KUBELET_STATS)
"""All components in the order in which they are started. They are stopped in reverse order."""


STAGES: Final = (
    "node-initialize.yaml",
    "node-heartbeat-with-lease.yaml",
    "pod-ready.yaml",
    "pod-complete.yaml",
)
"""kwok's stage files, which define how it simulates nodes and pods. Its *chaos* stages, which cause failures, are left
out.
"""

OWN_STAGES: Final = ("node-extended-resources.yaml", "pod-ready-again.yaml", "pod-terminate.yaml")
"""Stage files of this package, for behaviour of a kubelet that kwok's own stages do not simulate."""


_NO_NODE_LIFECYCLE: Final = "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller"
"""The controllers to disable together. The second one uses an index that the first one creates, so it does nothing
alone.
"""


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a cluster. They are stored in its record, so a later ``up`` without settings uses them again.

    Attributes:
        version: the Kubernetes version, a key of :data:`trimtab_local.versions.RELEASES`. It never changes.
        components: the components to run, in addition to etcd and kube-apiserver, which always run.
        apiserver_args: flags that are appended to trimtab's and override them (``--audit-log-path=…``).
        controller_manager_args: appended flags of kube-controller-manager
            (``--controllers=*,-node-lifecycle-controller``).
        scheduler_args: appended flags of kube-scheduler.
        kwok_args: appended flags of kwok.
        etcd_args: appended flags of etcd.
        for_load: whether the cluster is configured for hundreds of thousands of objects: no flow control in the API
            server, a larger etcd and less frequent Lease renewals. kwok then simulates only the pods that the scenario
            assigns to it.
        node_lifecycle: whether kube-controller-manager taints nodes and evicts pods from tainted ones. Otherwise
            trimtab must do that (TaintManager, mode TaintAndEvict). Until trimtab runs, new nodes keep the API server's
            taint not-ready:NoSchedule.
        stats_scenario: the scenario file of the simulated kubelets, if they run; see
            :mod:`trimtab_local.kubelets.scenario`.
        fsync: whether etcd waits until data is on disk. Without it, a power failure may lose the data, but the cluster
            is much faster.
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
    stats_scenario: str = ""
    fsync: bool = False

    def check(self) -> None:
        """Check that the settings are valid.

        Raises:
            InputError: a component is unknown, or a component on which it depends is missing.
        """
        for component in self.components:
            if component not in COMPONENTS:
                raise InputError(f"no component {component!r}; there are {', '.join(COMPONENTS)}", field="components")
        for component in (ETCD, APISERVER):
            if component not in self.components:
                raise InputError(f"{component} is missing; no cluster runs without it", field="components")

    @property
    def binaries(self) -> tuple[str, ...]:
        """Return the components that have a binary."""
        return tuple(component for component in self.components if component in DEFAULT_COMPONENTS)

    @property
    def untaints_nodes(self) -> bool:
        """Return whether kube-controller-manager's node-lifecycle controller runs.

        No other controller removes not-ready taints.
        """
        given = " ".join(self.controller_manager_args)
        theirs = self.node_lifecycle and "-node-lifecycle-controller" not in given
        return CONTROLLER_MANAGER in self.components and theirs


class Layout(Struct, frozen=True):
    """The paths of a cluster's files, and its ports."""

    directory: Path
    ports: dict[str, int]

    @property
    def keys(self) -> Keys:
        """Return the certificates, keys and tokens."""
        return Keys(directory=self.directory / "keys")

    @property
    def stages(self) -> Path:
        """Return the directory with kwok's stage files."""
        return self.directory / "stages"

    @property
    def etcd(self) -> str:
        """Return the URL of etcd."""
        return f"http://127.0.0.1:{self.ports[ETCD]}"

    @property
    def server(self) -> str:
        """Return the URL of the API server."""
        return f"https://127.0.0.1:{self.ports[APISERVER]}"

    def kubeconfig(self, user: str = "admin") -> Path:
        """Return the path of the kubeconfig of the admin or of a component."""
        return self.directory / ("kubeconfig" if user == "admin" else f"{user}.kubeconfig")

    def log(self, component: str) -> Path:
        """Return the path of the component's log."""
        return self.directory / "logs" / f"{component}.log"


def etcd(layout: Layout, settings: Settings) -> list[str]:
    """Return the flags of etcd: one member, plain HTTP on loopback."""
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
    """Return the flags of kube-apiserver: TLS, bearer tokens and RBAC."""
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
        f"--requestheader-client-ca-file={keys.front_proxy_ca}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={keys.front_proxy}",
        f"--proxy-client-key-file={keys.front_proxy_key}",
        f"--token-auth-file={keys.tokens}",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={keys.service_account_key}",
        f"--service-account-signing-key-file={keys.service_account_key}",
        # Without a controller-manager no component makes the service accounts that the plugin would look for.
        *(() if accounts else ("--disable-admission-plugins=ServiceAccount",)),
        *(load if settings.for_load else ()),
        *settings.apiserver_args,
    ]


def controller_manager(layout: Layout, settings: Settings) -> list[str]:
    """Return the flags of kube-controller-manager.

    Each controller uses its own service account, as in a real cluster.
    """
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
    """Return the flags of kube-scheduler. Its client limits are so high that they do not affect benchmarks."""
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
    """Return the flags of kwok, which acts as the kubelet of all nodes without the label :data:`~.nodes.SILENT`.

    When a node gets that label, it leaves kwok's watch: kwok no longer renews its Lease or updates its pods.
    """
    return [
        f"--kubeconfig={layout.kubeconfig(KWOK)}",
        f"--manage-nodes-with-label-selector=!{SILENT}",
        f"--node-lease-duration-seconds={800 if settings.for_load else 40}",
        f"--server-address=127.0.0.1:{layout.ports[KWOK]}",
        *((f"--node-port={layout.ports[KUBELET_STATS]}",) if KUBELET_STATS in settings.components else ()),
        *(f"--config={layout.stages / stage}" for stage in (*STAGES, *OWN_STAGES)),
        *settings.kwok_args,
    ]


def machine_controller(layout: Layout, settings: Settings) -> list[str]:
    """Return the command of trimtab's machine controller, which runs with kwok's permissions."""
    del settings
    return ["-m", "trimtab_local.machines", str(layout.kubeconfig(KWOK)), str(layout.ports[MACHINE_CONTROLLER])]


def kubelet_stats(layout: Layout, settings: Settings) -> list[str]:
    """Return the command of the simulated kubelets, which run with kwok's permissions."""
    return [
        "-m",
        "trimtab_local.kubelets",
        str(layout.kubeconfig(KWOK)),
        str(layout.keys.directory),
        str(layout.ports[KUBELET_STATS]),
        *((settings.stats_scenario,) if settings.stats_scenario else ()),
    ]


_ARGUMENTS: Final = {
    ETCD: etcd,
    APISERVER: apiserver,
    CONTROLLER_MANAGER: controller_manager,
    SCHEDULER: scheduler,
    KWOK: kwok,
    MACHINE_CONTROLLER: machine_controller,
    KUBELET_STATS: kubelet_stats,
}


class Launch(Struct, frozen=True):
    """The command of a component.

    Attributes:
        argv: the command line.
        version: the version of the binary; ``""`` if the caller provided it.
        environment: the environment variables that it needs.
    """

    argv: tuple[str, ...]
    version: str
    environment: dict[str, str] = {}


def launch(component: str, *, binary: Path, version: str, layout: Layout, settings: Settings) -> Launch:
    """Return the command of a component."""
    return Launch(
        argv=(str(binary), *_ARGUMENTS[component](layout, settings)),
        version=version,
    )


def launch_operator(kubeconfig: Path, port: int, *arguments: str) -> Launch:
    """Return the command of the operator.

    Args:
        kubeconfig: the kubeconfig of its service account.
        port: the port of its probes and metrics.
        arguments: further arguments of ``trimtab run``.
    """
    argv = (sys.executable, "-m", "trimtab", "run", f"--kubeconfig={kubeconfig}", f"--listen=127.0.0.1:{port}")
    return Launch(argv=(*argv, *arguments), version=__version__, environment=_own_environment())


def _own_environment() -> dict[str, str]:
    roots = dict.fromkeys(str(Path(path).parents[1]) for path in (trimtab.__file__, __file__))
    return {"PYTHONPATH": os.pathsep.join(roots)}


def launch_own(component: str, layout: Layout, settings: Settings) -> Launch:
    """Return the command of a component that is a module of this package, run by this Python interpreter."""
    python, version = Path(sys.executable), __version__
    own = launch(component, binary=python, version=version, layout=layout, settings=settings)
    return replace(own, environment=_own_environment())


def health(component: str, layout: Layout) -> str:
    """Return the URL that responds with status 200 if the component is healthy."""
    port = layout.ports[component]
    if component == ETCD:
        return f"{layout.etcd}/health"
    if component in (KWOK, MACHINE_CONTROLLER, KUBELET_STATS, OPERATOR):
        return f"http://127.0.0.1:{port}/{'readyz' if component in (KWOK, OPERATOR) else 'healthz'}"
    return f"https://127.0.0.1:{port}/{'readyz' if component == APISERVER else 'healthz'}"
