"""Which versions the local control plane is made of, and how each binary is built: one table."""

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
"""Our own, of :mod:`trimtab.local.machines`: it needs no binary."""
HELM: Final = "helm"

SERVERS: Final = (ETCD, APISERVER, KWOK, CONTROLLER_MANAGER, SCHEDULER)
"""What a cluster runs, in the order in which a build makes them: what is needed first, first."""


class Build(Struct, frozen=True):
    """How one binary is made.

    Attributes:
        module: directory under ``modules/`` with the ``go.mod`` and ``go.sum`` that pin every dependency.
        package: the Go package of the ``tool`` line.
        version: of the component; part of the cache directory's name.
        ldflags: what the linker sets. Kubernetes must be told its version: without it the server calls itself
            v0.0.0-master, and clients that look at the version judge it wrongly.
    """

    module: str
    package: str
    version: str
    ldflags: str = "-s -w"


class Release(Struct, frozen=True):
    """One set of components that go together, by the name of the binary, in order of need."""

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


RELEASES: Final[dict[str, Release]] = {"v1.36.3": _release("v1.36.3", module="kubernetes")}
"""Kubernetes version to release. A further version is a further row, with a module directory of its own."""

DEFAULT_VERSION: Final = "v1.36.3"


def release(version: str = DEFAULT_VERSION) -> Release:
    """The release of that Kubernetes version.

    Raises:
        InputError: there is no such row.
    """
    try:
        return RELEASES[version]
    except KeyError:
        raise InputError(f"Kubernetes version {version!r}: known are {', '.join(RELEASES)}") from None
