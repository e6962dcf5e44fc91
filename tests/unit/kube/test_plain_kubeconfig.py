"""Kubeconfigs that need no more than reading: always read as the `kubernetes` package reads them, or left to it."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import examples
from tests.unit.kube.test_config import kubeconfig
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.kubeconfig import load_any_kubeconfig, read_plain
from trimtab.kube.errors import InputError

ENVIRON = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "b.example"}
FILES = st.sampled_from(["ca.pem", "sub/../ca.pem"])
DATA = st.sampled_from(["Q0VSVA==", "Q0E=", ""])
NAMES = st.sampled_from(["a", "a", "a", "b"])
SERVERS = st.sampled_from(["https://a.example:6443/", "https://b.example", "http://a.example//"])

cluster_keys: dict[str, st.SearchStrategy[Any]] = {
    "certificate-authority": FILES,
    "certificate-authority-data": DATA,
    "insecure-skip-tls-verify": st.booleans(),
    "tls-server-name": st.sampled_from(["kubernetes", ""]),
    "extensions": st.just([{"name": "x"}]),
}
odd_cluster_keys: dict[str, st.SearchStrategy[Any]] = {
    "certificate-authority": st.just("missing.pem"),
    "certificate-authority-data": st.sampled_from(["Q0VSV", 7]),
    "insecure-skip-tls-verify": st.just("yes"),
    "proxy-url": st.sampled_from(["http://p:1", "socks5://p:1"]),
    "disable-compression": st.just(True),
}
user_keys: dict[str, st.SearchStrategy[Any]] = {
    "token": st.sampled_from(["t0", ""]),
    "client-certificate": FILES,
    "client-certificate-data": DATA,
    "client-key": FILES,
    "client-key-data": DATA,
}
odd_user_keys: dict[str, st.SearchStrategy[Any]] = {
    "token": st.just(5),
    "tokenFile": FILES,
    "client-key": st.just("missing.pem"),
    "username": st.just("me"),
    "password": st.just("secret"),
}
odd_server = st.fixed_dictionaries({"server": st.sampled_from(["a:1", 3])})
clusters = st.fixed_dictionaries({"server": SERVERS}, optional=cluster_keys)
odd_clusters = st.fixed_dictionaries({"server": SERVERS}, optional=odd_cluster_keys) | odd_server
users = st.none() | st.fixed_dictionaries({}, optional=user_keys)
odd_users = st.fixed_dictionaries({}, optional=odd_user_keys)
contexts = st.fixed_dictionaries(
    {"cluster": NAMES}, optional={"user": NAMES, "namespace": st.sampled_from(["shop", ""])}
)


def named(kind: str, *values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    named = st.builds(lambda name, value: {"name": name, kind: value}, NAMES, st.one_of(*values))
    return st.lists(named, min_size=1, max_size=3)


def configs(*, odd: bool) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "clusters": named("cluster", clusters, *([odd_clusters] if odd else [])),
            "users": named("user", users, *([odd_users] if odd else [])),
            "contexts": named("context", contexts),
            "current-context": st.sampled_from(["a", "a", "b", ""]),
        }
    )


@settings(max_examples=examples(300), deadline=None)
@given(st.booleans().flatmap(lambda odd: configs(odd=odd)), st.sampled_from(["", "a", "b"]))
def test_plain_reader_agrees_with_the_kubernetes_package(config, context) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "config")
        file.write_text(json.dumps(config))
        Path(directory, "ca.pem").write_bytes(b"CA")
        Path(directory, "sub").mkdir()
        files = [Path(directory, "none"), file]

        plain = read_plain(files, context=context, environ=ENVIRON)

        if plain is not None:
            assert plain == load_any_kubeconfig(files, context=context, environ=ENVIRON)


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({}, {"token": "t0"}),
        ({"certificate-authority-data": "Q0E="}, {"client-certificate-data": "Q0VSVA==", "client-key-data": "S0VZ"}),
        ({"insecure-skip-tls-verify": True, "extensions": []}, {}),
    ],
    ids=["token", "certificate", "anonymous"],
)
def test_plain_ones_need_no_kubernetes_package(cluster, user, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.setitem(sys.modules, "kubernetes.config.config_exception", None)

    assert load_config(kubeconfig(tmp_path / "config", cluster=cluster, user=user), environ={}).context == "dev"


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({}, {"exec": {"command": "c"}}),
        ({}, {"auth-provider": {"name": "oidc"}}),
        ({}, {"username": "me", "password": "secret"}),
        ({}, {"tokenFile": "token"}),
        ({}, {"token": "t0", "as": "somebody"}),
        ({"proxy-url": "http://p:1"}, {}),
        ({"server": "a:1"}, {}),
        ({"certificate-authority": "missing.pem"}, {}),
        ({"certificate-authority-data": "Q0VSV"}, {}),
    ],
    ids=["plugin", "oidc", "password", "token file", "other key", "proxy", "no URL", "no file", "no base64"],
)
def test_all_others_are_left_to_the_package(cluster, user, tmp_path) -> None:
    file = kubeconfig(tmp_path / "config", cluster=cluster, user=user)

    assert read_plain([file], context="", environ={}) is None


def test_several_files_are_left_to_the_package(tmp_path) -> None:
    files = [kubeconfig(tmp_path / name, name=name) for name in ("one", "two")]

    assert read_plain(files, context="", environ={}) is None
    assert load_config(f"{files[0]}:{files[1]}", environ={}).context == "two"


def test_a_folder_that_may_not_be_entered_is_left_to_the_package(tmp_path, monkeypatch) -> None:
    def refused(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", refused)

    assert read_plain([tmp_path / "config"], context="", environ={}) is None
    with pytest.raises(InputError, match="config"):
        load_config(str(tmp_path / "config"), environ={})


def test_a_broken_entry_that_is_not_used_does_not_matter(tmp_path) -> None:
    file = kubeconfig(tmp_path / "config")
    config = json.loads(file.read_text())
    config["users"].append({"name": "other", "user": 7})
    file.write_text(json.dumps(config))

    found = read_plain([file], context="", environ={})

    assert found == load_any_kubeconfig([file], environ={})
    assert found is not None


def test_invalid_files_are_left_to_the_kubernetes_package(tmp_path) -> None:
    with pytest.raises(InputError, match="File does not exist"):
        load_config(kubeconfig(tmp_path / "config", cluster={"certificate-authority": "missing.pem"}), environ={})
