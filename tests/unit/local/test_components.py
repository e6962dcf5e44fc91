from __future__ import annotations

import importlib.resources
import os
import re
import sys
from pathlib import Path

import pytest

import trimtab
import trimtab_local
from trimtab.kube.errors import InputError
from trimtab_local.components import (
    COMPONENTS,
    DEFAULT_COMPONENTS,
    OWN_STAGES,
    PORTS,
    STAGES,
    Layout,
    Settings,
    health,
    launch,
    launch_own,
)
from trimtab_local.versions import (
    APISERVER,
    CONTROLLER_MANAGER,
    DEFAULT_VERSION,
    ETCD,
    KUBELET_STATS,
    KWOK,
    MACHINE_CONTROLLER,
    RELEASES,
    SCHEDULER,
    release,
)

LAYOUT = Layout(directory=Path("/state/x"), ports={name: 20000 + index for index, name in enumerate(PORTS)})

NO_NODE_LIFECYCLE = "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller"


def argv(component: str, settings: Settings) -> tuple[str, ...]:
    return launch(component, binary=Path("/bin/it"), version="v1", layout=LAYOUT, settings=settings).argv


@pytest.mark.parametrize("component", DEFAULT_COMPONENTS)
def test_every_server_listens_on_loopback_only(component: str) -> None:
    words = " ".join(argv(component, Settings()))
    assert "0.0.0.0" not in words
    assert f"127.0.0.1:{LAYOUT.ports[component]}" in words or "--bind-address=127.0.0.1" in words


@pytest.mark.parametrize("component", COMPONENTS)
def test_health_uses_the_components_own_port(component: str) -> None:
    assert re.match(
        rf"https?://127\.0\.0\.1:{LAYOUT.ports[component]}/(health|healthz|readyz)$", health(component, LAYOUT)
    )


@pytest.mark.parametrize(
    ("component", "settings", "flag"),
    [
        (ETCD, Settings(), "--unsafe-no-fsync"),
        (ETCD, Settings(etcd_args=("--x",)), "--x"),
        (APISERVER, Settings(), "--authorization-mode=RBAC"),
        (APISERVER, Settings(apiserver_args=("--v=3",)), "--v=3"),
        (APISERVER, Settings(for_load=True), "--max-requests-inflight=0"),
        (APISERVER, Settings(components=(ETCD, APISERVER)), "--disable-admission-plugins=ServiceAccount"),
        (CONTROLLER_MANAGER, Settings(controller_manager_args=("--controllers=*",)), "--controllers=*"),
        (CONTROLLER_MANAGER, Settings(node_lifecycle=False), NO_NODE_LIFECYCLE),
        (SCHEDULER, Settings(scheduler_args=("--v=4",)), "--v=4"),
        (KWOK, Settings(), "--manage-nodes-with-label-selector=!local.trimtab.dev/silent"),
        (KWOK, Settings(kwok_args=("--cidr=10.1.0.0/16",)), "--cidr=10.1.0.0/16"),
        (KWOK, Settings(components=COMPONENTS), f"--node-port={LAYOUT.ports[KUBELET_STATS]}"),
        *((KWOK, Settings(), f"--config=/state/x/stages/{stage}") for stage in (*STAGES, *OWN_STAGES)),
    ],
)
def test_settings_become_flags(component: str, settings: Settings, flag: str) -> None:
    assert flag in argv(component, settings)


@pytest.mark.parametrize(
    ("component", "settings", "flag"),
    [
        (ETCD, Settings(fsync=True), "--unsafe-no-fsync"),
        (APISERVER, Settings(), "--max-requests-inflight=0"),
        (APISERVER, Settings(), "--disable-admission-plugins=ServiceAccount"),
        (APISERVER, Settings(node_lifecycle=False), "--disable-admission-plugins=ServiceAccount"),
        (CONTROLLER_MANAGER, Settings(), NO_NODE_LIFECYCLE),
    ],
)
def test_inapplicable_flags_are_omitted(component: str, settings: Settings, flag: str) -> None:
    assert flag not in argv(component, settings)


@pytest.mark.parametrize("component", [APISERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK, ETCD])
def test_given_flags_come_last(component: str) -> None:
    names = {
        APISERVER: "apiserver_args",
        CONTROLLER_MANAGER: "controller_manager_args",
        SCHEDULER: "scheduler_args",
        KWOK: "kwok_args",
        ETCD: "etcd_args",
    }
    settings = Settings(**{names[component]: ("--last",)}, for_load=True, node_lifecycle=False)
    assert argv(component, settings)[-1] == "--last"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(components=(ETCD, APISERVER, "kubelet")), "no component 'kubelet'; there are etcd,"),
        (Settings(components=(APISERVER,)), "etcd is missing"),
        (Settings(components=(ETCD, KWOK)), "kube-apiserver is missing"),
    ],
)
def test_components_that_cannot_run_are_refused(settings: Settings, message: str) -> None:
    with pytest.raises(InputError, match=message):
        settings.check()


@pytest.mark.parametrize(
    ("settings", "untaints"),
    [
        (Settings(), True),
        (Settings(components=(ETCD, APISERVER, KWOK)), False),
        (Settings(controller_manager_args=("--controllers=*,-node-lifecycle-controller",)), False),
        (Settings(node_lifecycle=False), False),
    ],
)
def test_settings_determine_who_removes_not_ready_taints(settings: Settings, untaints: bool) -> None:
    assert settings.untaints_nodes is untaints


def test_an_unknown_version_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InputError, match=r"v1\.0\.0.*known are v1\.37\.2"):
        release("v1.0.0")


BUILDS = [(version, name) for version, found in RELEASES.items() for name in found.builds]


@pytest.mark.parametrize(("version", "component"), BUILDS)
def test_the_module_pins_the_version_that_the_table_names(version: str, component: str) -> None:
    build = RELEASES[version].builds[component]
    root = importlib.resources.files("trimtab_local").joinpath("modules", build.module)
    text = root.joinpath("go.mod").read_text()
    sums = root.joinpath("go.sum").read_text()
    assert re.search(rf"^(tool )?\t?{re.escape(build.package)}$", text, re.MULTILINE)
    required = re.findall(r"^\t(\S+) (v\S+)", text, re.MULTILINE)
    module = max((path for path, _ in required if f"{build.package}/".startswith(f"{path}/")), key=len)
    assert dict(required)[module] == build.version
    assert f"{module} {build.version} h1:" in sums


@pytest.mark.parametrize("version", RELEASES)
def test_every_staging_module_is_replaced_by_the_one_of_the_same_release(version: str) -> None:
    module = RELEASES[version].builds[APISERVER].module
    text = importlib.resources.files("trimtab_local").joinpath("modules", module, "go.mod").read_text()
    replaced = re.findall(r"^(?:replace )?\t?(k8s\.io/\S+) => (\S+) (\S+)$", text, re.MULTILINE)
    # Two of the 33 are not part of those before 1.36.
    assert len(replaced) == (33 if version in ("v1.37.2", DEFAULT_VERSION) else 31)
    assert {(old == new, tag) for old, new, tag in replaced} == {(True, version.replace("v1.", "v0.", 1))}


def test_machine_controller_is_optional_and_has_no_binary() -> None:
    settings = Settings(components=COMPONENTS)
    settings.check()

    assert MACHINE_CONTROLLER not in Settings().components
    assert set(settings.binaries) == set(DEFAULT_COMPONENTS)


def test_the_machine_controller_is_this_package_in_this_python() -> None:
    started = launch_own(MACHINE_CONTROLLER, LAYOUT, Settings(components=COMPONENTS))

    port = str(LAYOUT.ports[MACHINE_CONTROLLER])
    assert started.argv == (sys.executable, "-m", "trimtab_local.machines", "/state/x/kwok.kubeconfig", port)
    roots = [str(Path(package.__file__).parents[1]) for package in (trimtab, trimtab_local) if package.__file__]
    assert started.environment == {"PYTHONPATH": os.pathsep.join(roots)}


def test_kubelet_stats_are_this_package_in_this_python() -> None:
    settings = Settings(components=COMPONENTS, stats_scenario="/scenario.yaml")

    started = launch_own(KUBELET_STATS, LAYOUT, settings)

    port = str(LAYOUT.ports[KUBELET_STATS])
    expected = ("trimtab_local.kubelets", "/state/x/kwok.kubeconfig", "/state/x/keys", port, "/scenario.yaml")
    assert started.argv == (sys.executable, "-m", *expected)
    assert KUBELET_STATS not in Settings().components
