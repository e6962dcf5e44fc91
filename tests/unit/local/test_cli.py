from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from trimtab.cli import local
from trimtab.cli.main import cli
from trimtab.local.cluster import LocalCluster
from trimtab.local.components import COMPONENTS, DEFAULT_COMPONENTS, PORTS, Settings
from trimtab.local.processes import Process
from trimtab.local.record import Record, Started, Store


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
    nobody = Process(pid=2**22 + 1, started="x")
    started = {"etcd": Started(process=nobody, argv=("etcd",), log="")}
    ports = dict.fromkeys(PORTS, 1)
    Store(directory=directory).write(Record(name="dead", settings=Settings(), ports=ports, started=started))


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
def test_bad_input_is_one_line_and_exit_status_2(words, message: str, state: Path) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1
    assert not state.exists()


@pytest.mark.parametrize("words", [("status",), ("kubeconfig",), ("load", "examples/local/small.yaml")])
def test_a_cluster_that_is_not_there_is_exit_status_1(words, state: Path) -> None:
    result = run(*words)
    assert (result.exit_code, result.stderr) == (
        1,
        "trimtab: no local cluster 'default'; start it with: trimtab local up --name default\n",
    )


def test_down_without_a_cluster_is_no_failure(state: Path) -> None:
    result = run("down")
    assert (result.exit_code, result.stdout) == (0, "There is no cluster default.\n")


def test_status_tells_the_dead_and_is_exit_status_1(state: Path) -> None:
    dead_cluster(state)
    result = run("status", "--name", "dead", "-o", "json")
    assert result.exit_code == 1
    found = msgspec.json.decode(result.stdout)
    assert found["healthy"] is False
    assert {component["state"] for component in found["components"]} == {"Dead"}
    assert set(found["components"][0]) == {"name", "state", "pid", "port", "memoryMiB", "version", "log"}
    assert "kube-apiserver" in run("status", "--name", "dead").stdout


def test_the_kubeconfig_is_printed_as_path_or_as_it_is(state: Path) -> None:
    dead_cluster(state)
    path = state / "dead" / "kubeconfig"
    assert run("kubeconfig", "--name", "dead").stdout == f"{path}\n"
    assert run("kubeconfig", "--name", "dead", "--raw").stdout == "a: kubeconfig\n"


def test_down_removes_what_is_ours_and_nothing_else(state: Path) -> None:
    dead_cluster(state)
    (state / "dead" / "notes.txt").write_text("mine")
    assert run("down", "--name", "dead").exit_code == 0
    assert [file.name for file in (state / "dead").iterdir()] == ["notes.txt"]


def test_down_can_keep_the_data(state: Path) -> None:
    dead_cluster(state)
    assert run("down", "--name", "dead", "--keep-data").exit_code == 0
    record = Store(directory=state / "dead").read()
    assert record is not None
    assert record.started == {}


@pytest.mark.parametrize(
    ("given", "components", "for_load"),
    [
        ({"machines": True}, COMPONENTS, False),
        ({"for_load": True}, DEFAULT_COMPONENTS, True),
        ({"machines": True, "for_load": True}, COMPONENTS, True),
    ],
    ids=["machines", "load", "both"],
)
def test_flags_add_to_what_a_cluster_is_made_of(given, components, for_load: bool, state: Path) -> None:
    wanted = {"machines": False, "for_load": False} | given

    settings = local._settings(LocalCluster("new"), **wanted)

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
def test_the_node_lifecycle_is_switched_and_stays(before: bool, given: bool | None, after: bool, state: Path) -> None:
    dead_cluster(state)
    store = Store(directory=state / "dead")
    record = store.read()
    assert record is not None
    store.write(msgspec.structs.replace(record, settings=Settings(node_lifecycle=before)))

    settings = local._settings(LocalCluster("dead"), machines=False, for_load=True, node_lifecycle=given)

    assert settings == Settings(for_load=True, node_lifecycle=after)


def test_the_node_lifecycle_alone_is_asked_for_by_its_flag(state: Path, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(LocalCluster, "up", lambda self, settings, **_: asked.append(settings))
    monkeypatch.setattr(LocalCluster, "kubeconfig", Path("/k"))
    monkeypatch.setattr(LocalCluster, "server", "https://127.0.0.1:1")

    assert run("up", "--no-node-lifecycle").exit_code == 0
    assert run("up").exit_code == 0

    assert asked == [Settings(node_lifecycle=False), None]


def test_without_flags_a_cluster_stays_as_it_is(state: Path) -> None:
    assert local._settings(LocalCluster("new"), machines=False, for_load=False) is None
