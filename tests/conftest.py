"""Fixtures and options of all tests. Nothing starts before a test requests ``cluster``."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from msgspec.structs import replace

from tests.fixtures.clusters import Cluster, kubeconfig_cluster
from tests.fixtures.golden import TESTS, Golden
from tests.fixtures.results import (
    add_operator_logs,
    fail_for_operator_warnings,
    finish,
    print_reruns,
    show_warnings_of_operators,
)
from trimtab.kube.api import NotFound
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab_local.binaries import find, given_directory
from trimtab_local.cluster import LocalCluster
from trimtab_local.components import Settings
from trimtab_local.progress import PlainProgress, Progress
from trimtab_local.versions import DEFAULT_VERSION, HELM, RELEASES, SERVERS

MakeCluster = Callable[..., LocalCluster]

_NUMBERS = itertools.count()

# No deadline: the time of an example depends on the machine. `quick` draws the same examples each time, so that no
# change is judged by new examples of others. `thorough` draws new ones; `make test-live` prints their seed.
settings.register_profile(
    "quick",
    deadline=None,
    max_examples=25,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=100, derandomize=False)
settings.register_profile("fuzz", settings.get_profile("thorough"), max_examples=20_000)
settings.load_profile(os.environ.get("TRIMTAB_HYPOTHESIS_PROFILE", "quick"))

LIVE_LIMIT: Final = 1800
"""Limit in seconds of a test that runs with `make test-live` only and sets none of its own."""


def pytest_sessionstart() -> None:
    """Unset the event loop: looptime asks for one before every test, and would create one that leaks."""
    asyncio.set_event_loop(None)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    finish(session)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    print_reruns(terminalreporter)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let jitter be the same each time, so that no unit test passes or fails by chance."""
    if item.path.is_relative_to(TESTS / "unit"):
        random.seed(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    fail_for_operator_warnings(item, report)
    add_operator_logs(item, report)
    return report


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the control plane before the first test that needs it, so that the build counts in no test's time limit."""
    config = session.config
    live = any(item.get_closest_marker("api") or item.get_closest_marker("e2e") for item in session.items)
    if config.option.collectonly or not live:
        return
    show_warnings_of_operators()
    if not hasattr(config, "workerinput") and getattr(config.option, "numprocesses", None):
        return  # the workers build it
    if config.getoption("--cluster") == "local":
        version: str = config.getoption("--kubernetes-version")
        find([*SERVERS, HELM], given=given_directory(None), version=version, progress=_progress(config))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("trimtab")
    group.addoption(
        "--cluster",
        choices=("local", "kind", "kubeconfig"),
        default="local",
        help="what tests with a real API server run against: 'local' (trimtab local; binaries are built at the first "
        "use, or taken from $KUBEBUILDER_ASSETS), 'kind' (pytest-kind; needs docker and --kind-image) or 'kubeconfig' "
        "(the cluster of --kubeconfig, which the tests change: let nothing else use it)",
    )
    group.addoption(
        "--kubernetes-version",
        choices=tuple(RELEASES),
        default=DEFAULT_VERSION,
        help="the Kubernetes version of local control planes; $KUBEBUILDER_ASSETS overrides it",
    )
    group.addoption(
        "--update-golden",
        action="store_true",
        help="run only the tests that use golden files, and write what they pass into tests/golden (`make golden`)",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by their folder, so that none can forget its marker.

    A test of tests/e2e is `live` unless it is marked `core`; a warning of the test's own process fails no live test.
    """
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
        if folder in ("api", "e2e"):
            item.add_marker(folder)
            item.add_marker(pytest.mark.filterwarnings("default"), append=False)
        if folder == "e2e" and item.get_closest_marker("core") is None:
            item.add_marker("live")
        if item.get_closest_marker("looptime") is not None:
            item.add_marker(pytest.mark.looptime(noop_cycles=1))  # by default each step of the time takes 42 idle turns
        if item.get_closest_marker("live") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIVE_LIMIT))
    if config.getoption("--update-golden"):
        chosen = [item for item in items if "golden" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare texts with this test's entries in a file of tests/golden, or write them there with --update-golden."""
    path = request.node.path.relative_to(TESTS / "unit").as_posix()
    return Golden(f"{path}::{request.node.name}", update=request.config.getoption("--update-golden"))


@pytest.fixture(scope="module")
def make_cluster(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[MakeCluster]:
    """Start local clusters with given settings, ``make_cluster(settings, nodes=0)``; all stop with the module.

    Idle ones would slow down all that come after them: a control plane at rest takes a good part of a core.
    """
    with _clusters(tmp_path_factory, pytestconfig) as make:
        yield make


@pytest.fixture(scope="session")
def make_lasting_cluster(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[MakeCluster]:
    """Start local clusters that several modules share; all stop with the session."""
    with _clusters(tmp_path_factory, pytestconfig) as make:
        yield make


@contextmanager
def _clusters(tmp_path_factory: pytest.TempPathFactory, config: pytest.Config) -> Iterator[MakeCluster]:
    """Start clusters and stop them at the end; a guard process stops them if the test process is killed."""
    started: list[LocalCluster] = []
    version: str = config.getoption("--kubernetes-version")

    def make(settings: Settings | None = None, *, nodes: int | None = None) -> LocalCluster:
        directory = tmp_path_factory.mktemp("cluster")
        name = f"test-{os.getpid()}-{next(_NUMBERS)}"
        cluster = LocalCluster(name, directory=directory, progress=_progress(config))
        started.append(cluster)
        cluster.up(replace(settings or Settings(), version=version), nodes=nodes, die_with_parent=True)
        return cluster

    yield make
    for cluster in reversed(started):
        cluster.down()


def _progress(config: pytest.Config) -> Progress:
    # A build takes minutes: say so where the user sees it, not into the captured output.
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        return PlainProgress(sys.stderr)

    class FakeRecorder(PlainProgress):
        def say(self, line: str) -> None:
            if line.startswith(("building", "installing", "waiting", "fetching")):
                with capture.global_and_fixture_disabled():
                    super().say(line)

    return FakeRecorder(sys.stderr)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The cluster that all tests of the session share. It has three nodes: create others for tests that count nodes."""
    if request.config.getoption("--cluster") == "local":
        make: MakeCluster = request.getfixturevalue("make_lasting_cluster")
        return make()
    return kubeconfig_cluster(request, tmp_path_factory.mktemp("kubeconfig"))


@pytest.fixture(scope="session")
def admin(cluster: Cluster) -> Path:
    """The kubeconfig of the shared cluster's admin."""
    return cluster.kubeconfig


@pytest.fixture
async def api(admin: Path) -> AsyncIterator[Transport]:
    """Our transport to the shared cluster, with the admin's permissions."""
    async with Transport(load_config(admin)) as transport:
        yield transport


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test in which pods can be created; it is deleted afterwards."""
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
