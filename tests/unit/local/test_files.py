"""What a cluster leaves on disk: names, keys, kubeconfigs, its record."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import msgspec
import pytest

from trimtab.kube.connection.config import load_config
from trimtab.kube.errors import InputError
from trimtab_local import LocalError, supervisor
from trimtab_local.certificates import USERS, make_keys
from trimtab_local.cluster import LocalCluster
from trimtab_local.components import PORTS, Settings
from trimtab_local.files import (
    Record,
    RecordStore,
    Started,
    cache_root,
    check_kubeconfig_target,
    cluster_directory,
    render_kubeconfig,
    state_root,
    write_kubeconfig,
)
from trimtab_local.processes import Process
from trimtab_local.versions import MACHINE_CONTROLLER


@pytest.mark.parametrize("name", ["a", "default", "test-1", "0-a"])
def test_a_cluster_has_a_directory_of_its_name(name: str, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert cluster_directory(name) == tmp_path / "trimtab" / "local" / name


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "-a", "a-", "a" * 41, "a\n"], ids=repr)
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="lower case letters"):
        cluster_directory(name)


def test_relative_xdg_directories_are_ignored(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert state_root() == tmp_path / ".local/state/trimtab/local"
    assert cache_root() == tmp_path / ".cache/trimtab"


def test_keys_are_private_and_created_once(tmp_path: Path) -> None:
    keys = make_keys(tmp_path / "keys")
    files = sorted(keys.directory.iterdir())
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert keys.directory.stat().st_mode & 0o777 == 0o700
    before = {file: file.read_bytes() for file in files}
    make_keys(keys.directory)
    assert {file: file.read_bytes() for file in files} == before


def test_every_user_has_its_own_token(tmp_path: Path) -> None:
    keys = make_keys(tmp_path)
    assert len({keys.token(user) for user in USERS}) == len(USERS)
    groups = {line.split(",")[1]: line.split(",")[3:] for line in keys.tokens.read_text().splitlines()}
    assert groups["trimtab:admin"] == ["system:masters"]
    assert groups["system:kube-scheduler"] == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "kubernetes.default.svc", "10.96.0.1"])
def test_a_strict_client_trusts_the_serving_certificate(host: str, tmp_path: Path) -> None:
    keys = make_keys(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(keys.serving, keys.serving_key)
    client = ssl.create_default_context(cafile=str(keys.ca))
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # Python's own default from 3.13 on
    left, right = socket.socketpair()

    def serve() -> None:
        with server.wrap_socket(left, server_side=True) as connection:
            connection.sendall(b"hello")

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(right, server_hostname=host) as connection:
        assert connection.recv(5) == b"hello"
    thread.join()


def make_kubeconfig(path: Path, name: str = "dev") -> Path:
    ca = path.with_name("ca.crt")
    ca.write_bytes(make_keys(path.with_name("keys")).ca.read_bytes())
    write_kubeconfig(path, render_kubeconfig(name=name, server="https://127.0.0.1:1", ca=ca, token="secret"))
    return path


def test_our_own_loader_reads_the_kubeconfig(tmp_path: Path) -> None:
    path = make_kubeconfig(tmp_path / "kubeconfig")
    config = load_config(path)
    assert (config.server, config.context, config.login.authorization) == (
        "https://127.0.0.1:1",
        "trimtab-dev",
        "Bearer secret",
    )
    assert path.stat().st_mode & 0o777 == 0o600


def test_own_kubeconfig_may_be_overwritten(tmp_path: Path) -> None:
    path = make_kubeconfig(tmp_path / "kubeconfig")
    check_kubeconfig_target(path, "dev")
    check_kubeconfig_target(tmp_path / "new", "dev")


@pytest.mark.parametrize(
    "content",
    [b"", b"text", b"[1]", b"contexts: [{name: production}]", b"contexts: [{name: trimtab-dev}, {name: production}]"],
    ids=["empty", "text", "list", "another", "ours-and-another"],
)
def test_a_kubeconfig_of_others_is_never_overwritten(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a kubeconfig of local cluster 'dev'"):
        check_kubeconfig_target(path, "dev")


def test_ports_are_free_and_all_different() -> None:
    chosen = supervisor.choose_ports(["a", "b", "c", "d"])
    assert len(set(chosen.values())) == 4
    for port in chosen.values():
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_taken_ports_are_not_chosen(monkeypatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(supervisor, "_PORT_RANGE", range(port, port + 1))
        with pytest.raises(LocalError, match="no 1 free ports"):
            supervisor.choose_ports(["a"])


def test_ports_that_another_process_chose_are_not_chosen(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = "from trimtab_local.supervisor import choose_ports; print(choose_ports(['a'])['a'], flush=True); input()"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    other = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    )
    assert other.stdout is not None
    port = int(other.stdout.readline())
    reserved = supervisor._ReservedPorts()
    assert not reserved.reserve(port)
    other.communicate("\n")
    assert reserved.reserve(port)
    assert not reserved.reserve(port)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    store = RecordStore(directory=tmp_path)
    assert store.read() is None
    started = Started(process=Process(pid=1, started="x"), argv=("a", "b"), log="l", version="v1")
    record = Record(name="n", settings=Settings(for_load=True), ports={"etcd": 1}, started={"etcd": started})
    store.write(record)
    assert store.read() == record


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not a cluster record"),
        (b'{"name": 1}', "not a cluster record"),
        (msgspec.json.encode(Record(name="n", settings=Settings(), ports={}, format=2)), "record format 2"),
    ],
    ids=["broken", "another-type", "another-format"],
)
def test_unreadable_record_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    store = RecordStore(directory=tmp_path)
    store.path.write_bytes(content)
    with pytest.raises(LocalError, match=message) as caught:
        store.read()
    assert str(store.path) in str(caught.value)


def test_a_cluster_of_an_older_version_gets_the_ports_that_it_lacks(tmp_path: Path) -> None:
    old = {name: 20000 + index for index, name in enumerate(PORTS) if name != MACHINE_CONTROLLER}
    RecordStore(directory=tmp_path).write(Record(name="old", settings=Settings(), ports=old))

    record = LocalCluster("old", directory=tmp_path)._prepared(Settings(), None, None)

    assert set(record.ports) == set(PORTS)
    assert old.items() <= record.ports.items()
