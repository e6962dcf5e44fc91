from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from tests.fixtures.golden import Golden
from trimtab.cli.main import cli
from trimtab_local.cli import _settings
from trimtab_local.cluster import LocalCluster
from trimtab_local.components import DEFAULT_COMPONENTS, PORTS, WITH_MACHINES, Settings
from trimtab_local.files import Record, RecordStore, Started
from trimtab_local.processes import Process
from trimtab_local.versions import DEFAULT_VERSION, KUBELET_STATS, RELEASES, SCHEDULER

OLDEST = [*RELEASES][-1]


@pytest.fixture
def state(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path / "trimtab" / "local"


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["local", *words])


def dead_cluster(state: Path) -> None:
    directory = state / "dead"
    (directory / "keys").mkdir(parents=True)
    (directory / "kubeconfig").write_text("a: kubeconfig\n")
    ended = Process(pid=2**22 + 1, started="x")
    started = {"etcd": Started(process=ended, argv=("etcd",), log="")}
    ports = dict.fromkeys(PORTS, 1)
    RecordStore(directory=directory).write(Record(name="dead", settings=Settings(), ports=ports, started=started))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("up", "--name", "A_b"), "trimtab: --name: 'A_b': up to 40 lower case letters"),
        (("up", "--bin-dir", "/none/such"), "trimtab: --bin-dir: no such directory: /none/such"),
        (
            ("up", "--kubeconfig", __file__),
            f"trimtab: --kubeconfig {__file__}: the file exists and is not a kubeconfig",
        ),
        (("load", "/none/such.yaml"), "trimtab: /none/such.yaml: No such file"),
    ],
)
def test_input_error_is_one_line_with_exit_status_2(words, message: str, state: Path) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1
    assert not state.exists()


@pytest.mark.parametrize("words", [("status",), ("kubeconfig",), ("load", "examples/local/small.yaml")])
def test_a_cluster_that_is_not_there_is_exit_status_1(words, state: Path, golden: Golden) -> None:
    result = run(*words)
    assert result.exit_code == 1
    golden(result.stderr)


def test_down_without_a_cluster_is_no_failure(state: Path, golden: Golden) -> None:
    result = run("down")
    assert result.exit_code == 0
    golden(result.stdout)


def test_status_with_dead_components_exits_with_1(state: Path) -> None:
    dead_cluster(state)
    result = run("status", "--name", "dead", "-o", "json")
    assert result.exit_code == 1
    found = msgspec.json.decode(result.stdout)
    assert found["healthy"] is False
    assert {component["state"] for component in found["components"]} == {"Dead"}
    assert set(found["components"][0]) == {"name", "state", "pid", "port", "memoryMiB", "version", "log"}
    assert "kube-apiserver" in run("status", "--name", "dead").stdout


def test_kubeconfig_prints_the_path_or_the_content(state: Path) -> None:
    dead_cluster(state)
    path = state / "dead" / "kubeconfig"
    assert run("kubeconfig", "--name", "dead").stdout == f"{path}\n"
    assert run("kubeconfig", "--name", "dead", "--raw").stdout == "a: kubeconfig\n"


def test_down_removes_only_files_of_the_cluster(state: Path) -> None:
    dead_cluster(state)
    (state / "dead" / "notes.txt").write_text("mine")
    assert run("down", "--name", "dead").exit_code == 0
    assert [file.name for file in (state / "dead").iterdir()] == ["notes.txt"]


def test_down_can_keep_the_data(state: Path) -> None:
    dead_cluster(state)
    assert run("down", "--name", "dead", "--keep-data").exit_code == 0
    record = RecordStore(directory=state / "dead").read()
    assert record is not None
    assert record.started == {}


@pytest.mark.parametrize(
    ("given", "components", "for_load"),
    [
        ({"machines": True}, WITH_MACHINES, False),
        ({"for_load": True}, DEFAULT_COMPONENTS, True),
        ({"machines": True, "for_load": True}, WITH_MACHINES, True),
    ],
    ids=["machines", "load", "both"],
)
def test_flags_extend_the_settings_of_a_cluster(given, components, for_load: bool, state: Path) -> None:
    wanted = {"machines": False, "for_load": False} | given

    settings = _settings(LocalCluster("new"), **wanted)

    assert settings == Settings(components=components, for_load=for_load)


@pytest.mark.parametrize(
    ("before", "given", "after"),
    [
        (True, False, False),
        (False, True, True),
        (False, None, False),
    ],
    ids=["left to trimtab", "given back", "as it was"],
)
def test_node_lifecycle_setting_is_kept(before: bool, given: bool | None, after: bool, state: Path) -> None:
    dead_cluster(state)
    store = RecordStore(directory=state / "dead")
    record = store.read()
    assert record is not None
    store.write(msgspec.structs.replace(record, settings=Settings(node_lifecycle=before)))

    settings = _settings(LocalCluster("dead"), machines=False, for_load=True, node_lifecycle=given)

    assert settings == Settings(for_load=True, node_lifecycle=after)


def test_each_flag_alone_changes_its_setting(state: Path, monkeypatch) -> None:
    requested = []
    monkeypatch.setattr(LocalCluster, "up", lambda self, settings, **_: requested.append(settings))
    monkeypatch.setattr(LocalCluster, "kubeconfig", Path("/k"))
    monkeypatch.setattr(LocalCluster, "server", "https://127.0.0.1:1")

    assert run("up", "--no-node-lifecycle").exit_code == 0
    assert run("up", "--scheduler").exit_code == 0
    assert run("up", "--kubernetes-version", OLDEST).exit_code == 0
    assert run("up").exit_code == 0

    assert requested == [Settings(node_lifecycle=False), Settings(), Settings(version=OLDEST), None]


def test_unknown_kubernetes_version_is_refused(state: Path) -> None:
    for command in ("up", "build"):
        result = run(command, "--kubernetes-version", "v1.0.0")
        assert result.exit_code == 2
        assert OLDEST in result.stderr
    assert not state.exists()


def test_cluster_keeps_its_kubernetes_version(state: Path) -> None:
    dead_cluster(state)
    before = RecordStore(directory=state / "dead").read()

    result = run("up", "--name", "dead", "--kubernetes-version", OLDEST)

    assert result.exit_code == 2
    assert DEFAULT_VERSION in result.stderr
    assert RecordStore(directory=state / "dead").read() == before


def test_build_builds_the_given_kubernetes_version(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = []

    class FakeBuilder:
        def __init__(self, *, version: str, **_: object) -> None:
            versions.append(version)

        def ensure(self, _: list[str]) -> dict[str, Path]:
            return {}

        def stages(self) -> None: ...

    monkeypatch.setattr("trimtab_local.binaries.Builder", FakeBuilder)

    assert run("build").exit_code == 0
    assert run("build", "--kubernetes-version", OLDEST).exit_code == 0

    assert versions == [DEFAULT_VERSION, OLDEST]


@pytest.mark.parametrize(
    ("before", "given", "after"), [(True, False, False), (False, True, True), (False, None, False)]
)
def test_scheduler_setting_is_kept(before: bool, given: bool | None, after: bool, state: Path) -> None:
    def settings(scheduler: bool) -> Settings:
        return Settings(components=tuple(c for c in DEFAULT_COMPONENTS if scheduler or c != SCHEDULER), for_load=True)

    dead_cluster(state)
    store = RecordStore(directory=state / "dead")
    record = store.read()
    assert record is not None
    store.write(msgspec.structs.replace(record, settings=settings(before)))

    assert _settings(LocalCluster("dead"), machines=False, for_load=True, scheduler=given) == settings(after)


def test_up_without_flags_keeps_the_settings(state: Path) -> None:
    assert _settings(LocalCluster("new"), machines=False, for_load=False) is None


def test_kubelet_stats_are_added_with_their_scenario(state: Path, tmp_path: Path) -> None:
    scenario = tmp_path / "stats.yaml"
    scenario.write_text("nodes: [{memory: {capacity: 1Gi}}]")

    settings = _settings(LocalCluster("new"), for_load=False, machines=False, kubelet_stats=scenario)

    expected = (*DEFAULT_COMPONENTS, KUBELET_STATS)
    assert settings == Settings(components=expected, stats_scenario=str(scenario))


def test_invalid_scenario_is_reported_before_anything_starts(state: Path, tmp_path: Path, golden: Golden) -> None:
    scenario = tmp_path / "stats.yaml"
    scenario.write_text("nodes: [{memory: {capacity: much}}]")

    result = run("up", "--kubelet-stats", str(scenario))

    assert result.exit_code == 2
    golden(result.output.replace(str(scenario), "stats.yaml"))
