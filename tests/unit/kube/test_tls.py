import asyncio
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.fakes import server as answers
from tests.fakes.server import FakeServer, fake_server
from trimtab.kube.api import Unauthorized, Unreachable
from trimtab.kube.connection.config import Login, ServerConfig
from trimtab.kube.connection.credentials import tls_context
from trimtab.kube.connection.transport import Transport
from trimtab.kube.errors import InputError
from trimtab.kube.retry import Backoff

ONCE = Backoff(attempts=1)


@dataclass
class Pair:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)


def certify(name: str, *, by: Pair | None = None, hosts: tuple[str, ...] = ()) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    names = [x509.IPAddress(ipaddress.ip_address(h)) if h[0].isdigit() else x509.DNSName(h) for h in hosts]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Pair(key, builder.sign(by.key if by else key, hashes.SHA256()))


CA = certify("ca")
CLIENT = certify("client-1", by=CA)


def server_context(tmp_path: Path, *hosts: str) -> ssl.SSLContext:
    pair = certify("server", by=CA, hosts=hosts)
    (tmp_path / "server.pem").write_bytes(pair.pem + pair.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=CA.pem.decode())
    context.load_cert_chain(tmp_path / "server.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


async def who(request: web.Request) -> web.Response:
    """Answers with the client certificate's common name, or 401 without one."""
    certificate = request.get_extra_info("peercert")
    if not certificate:
        return web.json_response({"kind": "Status", "code": 401, "message": "who?"}, status=401)
    return web.json_response(dict(part for each in certificate["subject"] for part in each)["commonName"])


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[FakeServer]:
    async with fake_server(ssl=server_context(tmp_path, "127.0.0.1", "localhost")) as fake:
        fake.answer(who)
        yield fake


async def test_a_client_certificate_logs_in(server):
    login = Login(certificate=CLIENT.pem, key=CLIENT.key_pem)
    async with Transport(ServerConfig(server=server.url, ca=CA.pem, login=login)) as transport:
        assert await transport.request("GET", "/") == "client-1"


async def test_private_key_file_is_deleted_after_loading(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tls_context(ServerConfig(server="https://a", login=Login(certificate=CLIENT.pem, key=CLIENT.key_pem)))
    assert list(tmp_path.iterdir()) == []


async def test_a_server_of_another_authority_is_not_talked_to(server):
    async with Transport(ServerConfig(server=server.url, ca=certify("other").pem), retries=ONCE) as transport:
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await transport.request("GET", "/")


async def test_a_server_of_another_name_is_not_talked_to(tmp_path):
    async with fake_server(ssl=server_context(tmp_path, "kubernetes")) as server:
        server.answer(answers.json("ok"))
        async with Transport(ServerConfig(server=server.url, ca=CA.pem), retries=ONCE) as transport:
            with pytest.raises(Unreachable, match=r"not valid for '127\.0\.0\.1'"):
                await transport.request("GET", "/")


async def test_the_name_to_expect_may_be_given_for_kopf_too(tmp_path):
    async with fake_server(ssl=server_context(tmp_path, "kubernetes")) as server:
        server.answer(answers.json("ok"))
        config = ServerConfig(server=server.url, ca=CA.pem, tls_server_name="kubernetes")
        async with Transport(config) as transport, transport.borrowed_session().get(server.url) as response:
            assert await transport.request("GET", "/") == "ok"
            assert response.status == 200


async def test_an_insecure_server_is_talked_to(tmp_path):
    async with fake_server(ssl=server_context(tmp_path, "elsewhere")) as server:
        server.answer(answers.json("ok"))
        async with Transport(ServerConfig(server=server.url, insecure=True)) as transport:
            assert await transport.request("GET", "/") == "ok"


class Renewing:
    """Has a certificate only after the first refusal."""

    def __init__(self) -> None:
        self.now = Login()

    async def login(self) -> Login:
        return self.now

    async def renew(self, refused: Login) -> Login | None:
        self.now = Login(certificate=CLIENT.pem, key=CLIENT.key_pem)
        return self.now if self.now != refused else None


async def test_a_renewed_certificate_is_presented_though_old_connections_are_pooled(server):
    config = ServerConfig(server=server.url, ca=CA.pem)
    renewing = Renewing()
    async with Transport(config, credentials=renewing) as transport:
        server.answer(answers.json("anonymous"))
        await asyncio.gather(*(transport.request("GET", "/") for _ in range(5)))
        server.answer(who)
        assert await transport.request("GET", "/") == "client-1"


async def test_a_certificate_that_is_refused_ends_as_unauthorized(server):
    server.answer(answers.status(401, message="no"))
    config = ServerConfig(server=server.url, ca=CA.pem)
    async with Transport(config, credentials=Renewing()) as transport:
        with pytest.raises(Unauthorized):
            await transport.request("GET", "/")


ENCRYPTED = CLIENT.key.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ca": b"nonsense"}, "the certificate authority is not a PEM file"),
        ({"ca": b"\xff"}, "the certificate authority is not a PEM file"),
        ({"login": Login(certificate=b"nonsense", key=CLIENT.key_pem)}, "the client certificate or its key"),
        ({"login": Login(certificate=CLIENT.pem, key=CA.key_pem)}, "the client certificate or its key"),
        ({"login": Login(certificate=CLIENT.pem, key=ENCRYPTED)}, "the key is encrypted"),
    ],
    ids=["ca", "ca bytes", "certificate", "other key", "encrypted key"],
)
def test_invalid_certificate_error_names_its_source(options, message):
    with pytest.raises(InputError, match=f"^kubeconfig a, context b: .*{message}"):
        tls_context(ServerConfig(server="https://a", source="kubeconfig a, context b", **options))


def test_plain_http_needs_no_context():
    assert tls_context(ServerConfig(server="http://a")) is None
