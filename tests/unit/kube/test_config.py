import json
import sys
from pathlib import Path

import pytest

from tests.fixtures.golden import Golden
from trimtab.kube.connection.config import Login, ServerConfig, load_config, proxy_for
from trimtab.kube.errors import InputError


def kubeconfig(
    file: Path,
    *,
    name: str = "dev",
    cluster: dict | None = None,
    user: dict | None = None,
    namespace: str = "",
    current: str | None = None,
) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.example:6443"} | (cluster or {})}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name} | ({"namespace": namespace} if namespace else {})}
        ],
        "current-context": name if current is None else current,
    }
    file.write_text(json.dumps(config))
    return file


@pytest.fixture
def service_account(tmp_path: Path) -> Path:
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    (directory / "token").write_text("sa-token\n")
    (directory / "namespace").write_text("trimtab-system")
    (directory / "ca.crt").write_bytes(b"CA")
    return directory


IN_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_explicit_kubeconfig_has_precedence(tmp_path, service_account):
    named = kubeconfig(tmp_path / "named", name="named")
    other = kubeconfig(tmp_path / "other", name="other")
    environ = {"KUBECONFIG": str(other), "HOME": str(tmp_path), **IN_POD}
    assert load_config(named, environ=environ, service_account=service_account).server == "https://named.example:6443"


def test_kubeconfig_variable_has_precedence_over_the_home_directory(tmp_path):
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube" / "config", name="home")
    other = kubeconfig(tmp_path / "other", name="other")
    assert load_config(environ={"HOME": str(tmp_path)}).server == "https://home.example:6443"
    assert load_config(environ={"HOME": str(tmp_path), "KUBECONFIG": str(other)}).server == "https://other.example:6443"


def test_without_a_kubeconfig_the_pods_service_account_is_used(tmp_path, service_account):
    config = load_config(environ={"HOME": str(tmp_path), **IN_POD}, service_account=service_account)
    assert config == ServerConfig(
        server="https://10.96.0.1:443",
        source=f"service account {service_account}",
        namespace="trimtab-system",
        ca=b"CA",
        login=Login(authorization="Bearer sa-token"),
        token_file=str(service_account / "token"),
    )


def test_the_service_account_needs_no_kubernetes_package(tmp_path, service_account, monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes.config", None)
    load_config(environ={"HOME": str(tmp_path), **IN_POD}, service_account=service_account)


def test_an_ipv6_service_address_is_bracketed(tmp_path, service_account):
    environ = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert load_config(environ=environ, service_account=service_account).server == "https://[fd00::1]:443"


def test_missing_service_account_token_is_an_input_error(tmp_path, service_account):
    (service_account / "token").unlink()
    with pytest.raises(InputError, match=r"serviceaccount: token: No such file.*automountServiceAccountToken"):
        load_config(environ={"HOME": str(tmp_path), **IN_POD}, service_account=service_account)


def test_missing_configuration_names_the_searched_locations(tmp_path):
    with pytest.raises(InputError, match=f"no kubeconfig at {tmp_path}/.kube/config, and this is not a pod"):
        load_config(environ={"HOME": str(tmp_path)})


def test_a_named_file_that_is_missing_never_falls_back(tmp_path, service_account, golden: Golden):
    with pytest.raises(InputError) as raised:
        load_config("/nowhere/config", environ=IN_POD, service_account=service_account)
    golden(str(raised.value))


def test_files_of_a_list_are_merged_and_missing_ones_passed_over(tmp_path):
    one, two = kubeconfig(tmp_path / "one", name="one", current=""), kubeconfig(tmp_path / "two", name="two")
    environ = {"KUBECONFIG": f"{tmp_path}/missing:{one}:{two}"}
    assert load_config(environ=environ).context == "two"
    assert load_config(environ=environ, context="one").server == "https://one.example:6443"


def test_all_of_a_kubeconfigs_settings_are_read(tmp_path):
    (tmp_path / "ca.pem").write_bytes(b"CA")
    file = kubeconfig(
        tmp_path / "config",
        cluster={
            "server": "https://10.0.0.1:6443/",
            "certificate-authority": "ca.pem",
            "tls-server-name": "kubernetes",
            "proxy-url": "http://proxy:3128",
            "insecure-skip-tls-verify": True,
        },
        user={"client-certificate-data": "Q0VSVA==", "client-key-data": "S0VZ"},
        namespace="shop",
    )
    assert load_config(file, environ={}) == ServerConfig(
        server="https://10.0.0.1:6443",
        source=f"kubeconfig {file}, context dev",
        namespace="shop",
        ca=b"CA",
        insecure=True,
        tls_server_name="kubernetes",
        proxy="http://proxy:3128",
        login=Login(certificate=b"CERT", key=b"KEY"),
        kubeconfig=str(file),
        context="dev",
    )


@pytest.mark.parametrize(
    ("user", "authorization"),
    [
        ({"token": "t0"}, "Bearer t0"),
        ({"username": "me", "password": "secret"}, "Basic bWU6c2VjcmV0"),
        ({}, ""),
    ],
    ids=["token", "password", "anonymous"],
)
def test_logins_of_a_kubeconfig(tmp_path, user, authorization):
    assert load_config(kubeconfig(tmp_path / "config", user=user), environ={}).login.authorization == authorization


def test_token_file_relative_to_the_kubeconfig_is_kept_for_rotation(tmp_path):
    (tmp_path / "token").write_text("t1")
    config = load_config(kubeconfig(tmp_path / "config", user={"tokenFile": "token"}), environ={})
    assert config.login.authorization == "Bearer t1"
    assert config.token_file == str(tmp_path / "token")


def plugin(directory: Path, status: dict, *, code: int = 0) -> dict:
    response = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    script = directory / "plugin.py"
    script.write_text(
        f"import sys\nprint({json.dumps(response)!r})\nprint('no luck', file=sys.stderr)\nsys.exit({code})\n"
    )
    command = {"command": sys.executable, "args": ["plugin.py"], "env": [{"name": "A", "value": "b"}]}
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", **command}}


def test_an_exec_plugins_token_and_its_end_are_used(tmp_path):
    user = plugin(tmp_path, {"token": "t2", "expirationTimestamp": "2026-11-20T12:00:00Z"})
    file = kubeconfig(tmp_path / "config", user=user)
    before = file.read_text()
    assert load_config(file, environ={}).login == Login(authorization="Bearer t2", expires=1795176000.0)
    assert file.read_text() == before


def test_an_exec_plugins_certificate_is_used(tmp_path):
    user = plugin(tmp_path, {"clientCertificateData": "CERT", "clientKeyData": "KEY"})
    assert load_config(kubeconfig(tmp_path / "config", user=user), environ={}).login == Login(
        certificate=b"CERT", key=b"KEY"
    )


def test_failed_exec_plugin_error_contains_its_message(tmp_path):
    file = kubeconfig(tmp_path / "config", user=plugin(tmp_path, {}, code=3))
    with pytest.raises(InputError, match=r"config: context dev: exec: process returned 3\. no luck"):
        load_config(file, environ={})


def test_missing_exec_plugin_error_contains_the_install_hint(tmp_path):
    command = {"command": "no-such-plugin", "installHint": "get it\n from the shop"}
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", **command}}
    with pytest.raises(
        InputError, match=r"exec plugin no-such-plugin: No such file or directory; get it from the shop"
    ):
        load_config(kubeconfig(tmp_path / "config", user=user), environ={})


def test_an_exec_plugin_that_gives_nothing_is_an_error(tmp_path):
    with pytest.raises(InputError, match="neither a token nor a certificate"):
        load_config(kubeconfig(tmp_path / "config", user=plugin(tmp_path, {})), environ={})


ONE = "{contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: %s}]}"


@pytest.mark.parametrize(
    ("content", "context", "message"),
    [
        ("", None, "config: .*file is empty"),
        ("a: [", None, "config: while parsing"),
        ("[]", None, "config: not a kubeconfig"),
        ("hello", None, "config: not a kubeconfig"),
        ("{}", None, r"current-context is not set; choose one of: \(it has no contexts\)"),
        ("{contexts: [{name: a, context: {cluster: a}}]}", None, "current-context is not set; choose one of: a"),
        ("{contexts: [{name: a, context: {cluster: a}}]}", "b", "config: context b: no such context; choose one of: a"),
        ("{contexts: [{name: a, context: {cluster: x}}]}", "a", "context a: .*name x in .*clusters list"),
        (
            "{contexts: [{name: a, context: {cluster: a, user: u}}], clusters: [{name: a, cluster: {server: 'https://a'}}]}",
            "a",
            "context a: its user u is not in the file",
        ),
        (
            ONE % "{server: 'a:6443'}",
            "a",
            "context a: cluster a: server is 'a:6443', but must be",
        ),
        (
            ONE % "{server: 'https://a', proxy-url: 'socks5://p'}",
            "a",
            "context a: proxy socks5://p is not supported",
        ),
        (
            ONE % "{server: 'https://a', certificate-authority: /nowhere/ca}",
            "a",
            "context a: File does not exist: /nowhere/ca",
        ),
    ],
)
def test_invalid_kubeconfig_error_names_file_and_context(tmp_path, content, context, message):
    file = tmp_path / "config"
    file.write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        load_config(file, context=context, environ={})
    assert str(caught.value).startswith(f"kubeconfig {file}")
    assert "\n" not in str(caught.value)


def test_error_without_the_kubernetes_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes.config.config_exception", None)
    with pytest.raises(InputError, match=r"pip install 'trimtab\[cli\]'"):
        load_config(kubeconfig(tmp_path / "config", user=plugin(tmp_path, {"token": "t2"})), environ={})


def test_secrets_never_show(golden: Golden):
    shown = repr(
        ServerConfig(server="https://a", login=Login(authorization="Bearer s3cret", certificate=b"C", key=b"K3Y"))
    )
    golden(shown)
    assert "s3cret" not in shown
    assert "K3Y" not in shown


@pytest.mark.parametrize(
    ("server", "no_proxy", "proxied"),
    [
        ("https://a.example:6443", "", True),
        ("https://a.example:6443", "ample", True),
        ("https://a.example:6443", "a.example", False),
        ("https://b.a.example:6443", "a.example", False),
        ("https://a.example:6443", ".a.example", True),
        ("https://b.a.example:6443", "x, .a.example", False),
        ("https://b.a.example:6443", "*.a.example", False),
        ("https://a.example:6443", "a.example:443", True),
        ("https://a.example", "a.example:443", False),
        ("https://a.example:6443", "*", False),
        ("https://10.96.0.1:443", "10.0.0.0/8", False),
        ("https://10.96.0.1:443", "10.96.0.1", False),
        ("https://11.96.0.1:443", "10.0.0.0/8", True),
        ("https://[fd00::1]:443", "fd00::/8", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://localhost:6443", "", False),
        ("http://a.example:8080", "", False),
    ],
)
def test_a_proxy_is_used_by_gos_rules(server, no_proxy, proxied):
    environ = {"HTTPS_PROXY": "proxy:3128", "NO_PROXY": no_proxy}
    assert proxy_for(server, environ=environ) == ("http://proxy:3128" if proxied else "")
