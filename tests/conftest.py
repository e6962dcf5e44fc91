"""What all tests share. Nothing here starts anything before a test asks for ``cluster``."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.fixtures.clusters import Cluster, KindBackend, docker_runs
from trimtab.kube.api import NotFound
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.local.cluster import LocalCluster
from trimtab.local.components import Settings
from trimtab.local.progress import PlainProgress, Progress

MakeCluster = Callable[..., LocalCluster]

_NUMBERS = itertools.count()

# How long an example takes says something of the machine, not of the code. In CI hypothesis draws the same examples
# every time, which it decides by itself.
settings.register_profile("trimtab", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("trimtab")


def pytest_sessionstart() -> None:
    """Say that there is no event loop yet: looptime asks for one before every test, and would make one that leaks."""
    asyncio.set_event_loop(None)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("trimtab")
    group.addoption(
        "--cluster",
        choices=("local", "kind"),
        default="local",
        help="what tests with a real API server run against: 'local' (trimtab local; binaries are built at the first "
        "use, or taken from $KUBEBUILDER_ASSETS) or 'kind' (pytest-kind; needs docker and --kind-image)",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the upper tiers are known by their folder, so that none can forget its marker."""
    here = Path(__file__).parent
    for item in items:
        tier = item.path.relative_to(here).parts[0] if item.path.is_relative_to(here) else ""
        if tier in ("api", "e2e"):
            item.add_marker(tier)


@pytest.fixture(scope="module")
def make_cluster(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[MakeCluster]:
    """Start local clusters with settings of their own: ``make_cluster(settings, nodes=0)``; all end with the module.

    Idle ones would slow down all that come after them: a control plane at rest takes a good part of a core.
    """
    with _clusters(tmp_path_factory, pytestconfig) as make:
        yield make


@pytest.fixture(scope="session")
def make_lasting_cluster(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[MakeCluster]:
    """The same for what modules share; all end with the session."""
    with _clusters(tmp_path_factory, pytestconfig) as make:
        yield make


@contextmanager
def _clusters(tmp_path_factory: pytest.TempPathFactory, config: pytest.Config) -> Iterator[MakeCluster]:
    """They end also when the test process is killed: a guard process watches it."""
    started: list[LocalCluster] = []

    def make(settings: Settings | None = None, *, nodes: int | None = None) -> LocalCluster:
        directory = tmp_path_factory.mktemp("cluster")
        name = f"test-{os.getpid()}-{next(_NUMBERS)}"
        cluster = LocalCluster(name, directory=directory, progress=_progress(config))
        started.append(cluster)
        cluster.up(settings, nodes=nodes, die_with_parent=True)
        return cluster

    yield make
    for cluster in reversed(started):
        cluster.down()


def _progress(config: pytest.Config) -> Progress:
    # A build takes minutes: say so where the user sees it, not into the captured output.
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        return PlainProgress(sys.stderr)

    class Told(PlainProgress):
        def say(self, line: str) -> None:
            if line.startswith(("building", "installing", "waiting", "fetching")):
                with capture.global_and_fixture_disabled():
                    super().say(line)

    return Told(sys.stderr)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The cluster that all tests of the session share; three nodes, so make your own nodes for what counts them."""
    if request.config.getoption("--cluster") == "local":
        make: MakeCluster = request.getfixturevalue("make_lasting_cluster")
        return make()
    if not docker_runs():
        pytest.skip("--cluster=kind: no docker daemon answers here")
    option = request.config.option
    if not option.kind_image:
        pytest.fail("--cluster=kind needs --kind-image: pytest-kind's default is years old")
    option.kind_bin = option.kind_bin or shutil.which("kind")
    option.kind_kubectl_bin = option.kind_kubectl_bin or shutil.which("kubectl")
    if not (option.kind_bin and option.kind_kubectl_bin):
        pytest.fail("--cluster=kind needs kind and kubectl on PATH, or --kind-bin and --kind-kubectl-bin")
    return KindBackend(request.getfixturevalue("kind_cluster"), directory=tmp_path_factory.mktemp("kind"))


@pytest.fixture(scope="session")
def admin(cluster: Cluster) -> Path:
    """The kubeconfig of the shared cluster's admin."""
    return cluster.kubeconfig


@pytest.fixture
async def api(admin: Path) -> AsyncIterator[Transport]:
    """Our own transport to the shared cluster, with the admin's rights."""
    async with Transport(load_config(admin)) as transport:
        yield transport


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own, ready for pods; it is deleted afterwards."""
    name = f"test-{secrets.token_hex(4)}"
    client = cluster.client
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            # Pods are refused until the controller has made the account that they run as.
            client.request("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default")
            break
        except NotFound:
            time.sleep(0.05)
    yield name
    client.request("DELETE", f"/api/v1/namespaces/{name}")
