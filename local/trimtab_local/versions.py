"""The versions of the local control plane's components, and how each binary is built."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.kube.errors import InputError

ETCD: Final = "etcd"
APISERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
KWOK: Final = "kwok"
MACHINE_CONTROLLER: Final = "machine-controller"
"""The machine controller of :mod:`trimtab_local.machines`, which has no binary."""
KUBELET_STATS: Final = "kubelet-stats"
"""The simulated kubelets of :mod:`trimtab_local.kubelets`, which have no binary."""
OPERATOR: Final = "operator"
"""`trimtab run`, which `trimtab local install` starts."""
HELM: Final = "helm"

SERVERS: Final = (ETCD, APISERVER, KWOK, CONTROLLER_MANAGER, SCHEDULER)
"""The components of a cluster in the order in which they are built. Those that are needed first come first."""


class Build(Struct, frozen=True):
    """The build of one binary.

    Attributes:
        module: the directory under ``modules/`` whose ``go.mod`` and ``go.sum`` pin every dependency.
        package: the Go package of the ``tool`` line.
        version: the version of the component, which is part of the cache directory's name.
        ldflags: the linker flags. They set the version of Kubernetes. Otherwise the server would report v0.0.0-master,
            and clients that check the version would fail.
    """

    module: str
    package: str
    version: str
    ldflags: str = "-s -w"


class Release(Struct, frozen=True):
    """The components of one release by binary name, in the order in which they are needed."""

    kubernetes: str
    builds: dict[str, Build]


def _kubernetes(version: str, module: str, binary: str) -> Build:
    major, minor, _ = version.removeprefix("v").split(".")
    stamp = "k8s.io/component-base/version."
    return Build(
        module=module,
        package=f"k8s.io/kubernetes/cmd/{binary}",
        version=version,
        ldflags=f"-s -w -X {stamp}gitVersion={version} -X {stamp}gitMajor={major} -X {stamp}gitMinor={minor}",
    )


def _release(kubernetes: str, *, module: str) -> Release:
    return Release(
        kubernetes=kubernetes,
        builds={
            ETCD: Build("etcd", "go.etcd.io/etcd/server/v3", "v3.6.16"),
            APISERVER: _kubernetes(kubernetes, module, APISERVER),
            KWOK: Build("kwok", "sigs.k8s.io/kwok/cmd/kwok", "v0.8.0"),
            CONTROLLER_MANAGER: _kubernetes(kubernetes, module, CONTROLLER_MANAGER),
            SCHEDULER: _kubernetes(kubernetes, module, SCHEDULER),
            HELM: Build("helm", "helm.sh/helm/v3/cmd/helm", "v3.21.4"),
        },
    )


DEFAULT_VERSION: Final = "v1.36.3"

RELEASES: Final[dict[str, Release]] = {
    "v1.37.2": _release("v1.37.2", module="kubernetes-1.37"),
    DEFAULT_VERSION: _release(DEFAULT_VERSION, module="kubernetes"),
    "v1.35.4": _release("v1.35.4", module="kubernetes-1.35"),
    "v1.34.4": _release("v1.34.4", module="kubernetes-1.34"),
    "v1.33.13": _release("v1.33.13", module="kubernetes-1.33"),
}
"""The release of each Kubernetes version, newest first. Each needs its own directory of modules.

Those that are not the default are for tests of compatibility and benchmarks. All have the same etcd, kwok and Helm.
"""


def release(version: str = DEFAULT_VERSION) -> Release:
    """Return the release of a Kubernetes version.

    Raises:
        InputError: the version is not supported.
    """
    try:
        return RELEASES[version]
    except KeyError:
        raise InputError(f"Kubernetes version {version!r}: known are {', '.join(RELEASES)}") from None
