"""Many kubelets in one process, which serve ``/stats/summary`` over TLS at loopback addresses.

Each kubelet has an address and a port of its own (:func:`address_of`). Connections are non-blocking TLS sockets of one
epoll loop, because asyncio would need 256 KiB for each of them.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import selectors
import socket
import ssl
import sys
import time
from pathlib import Path
from typing import Any, Final

ADDRESSES: Final = 10
"""Number of addresses. Each has one port for every :data:`ADDRESSES` kubelets, and is in the certificate."""

TOKEN: Final = "kubelet-stats"
GIBI: Final = 2**30
OWNER_SIZE: Final = 20
NAMESPACES: Final = 50
PODS_PER_NODE: Final = 30

PRESSED: Final = 100
"""One of so many nodes is under pressure. The others share the stats of their pods."""


def name_of(number: int) -> str:
    """Return the name of a node, as in ``wire.py``."""
    return f"node-{number}"


def address_of(number: int, first_port: int) -> tuple[str, int]:
    """Return the address and the port of a kubelet."""
    return f"127.0.77.{1 + number % ADDRESSES}", first_port + number // ADDRESSES


def free_ports(number: int) -> int:
    """Return the first of enough consecutive free ports for a number of kubelets."""
    count = -(-number // ADDRESSES)
    for first in range(11000, 60000, count):
        try:
            for port in range(first, first + count):
                socket.create_server(("0.0.0.0", port)).close()
        except OSError:
            continue
        return first
    raise OSError(f"{count} consecutive ports are not free")


def write_certificates(directory: Path) -> tuple[Path, Path]:
    """Write a CA certificate, and a certificate for all addresses with its key; return both paths."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = dt.datetime.now(dt.UTC)

    def build(name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubelets-ca")]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
        )

    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = build("kubelets-ca", ca_key).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    addresses = [x509.IPAddress(ipaddress.ip_address(address_of(each, 0)[0])) for each in range(ADDRESSES)]
    serving = build("system:node:any", key).add_extension(x509.SubjectAlternativeName(addresses), critical=False)
    pem = serialization.Encoding.PEM
    (directory / "ca.pem").write_bytes(ca.sign(ca_key, hashes.SHA256()).public_bytes(pem))
    (directory / "kubelet.pem").write_bytes(
        serving.sign(ca_key, hashes.SHA256()).public_bytes(pem)
        + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return directory / "ca.pem", directory / "kubelet.pem"


def pods(node: int) -> list[dict[str, Any]]:
    """Return the stats of a node's pods (``wire.py``) as a kubelet v1.36 writes them, about 1.3 KB each."""
    time_ = "2026-11-23T06:00:00Z"

    def memory(used: int) -> dict[str, Any]:
        psi = {name: {"total": 0, "avg10": 0, "avg60": 0, "avg300": 0} for name in ("full", "some")}
        sizes = {"usageBytes": used + 4096, "workingSetBytes": used, "rssBytes": used - 4096}
        return {
            "time": time_,
            "availableBytes": 9 * GIBI,
            **sizes,
            "pageFaults": 81237,
            "majorPageFaults": 3,
            "psi": psi,
        }

    def file_system(used: int) -> dict[str, Any]:
        sizes = {"availableBytes": 60 * GIBI, "capacityBytes": 100 * GIBI, "usedBytes": used}
        return {"time": time_, **sizes, "inodesFree": 6_000_000, "inodes": 6_553_600, "inodesUsed": 17}

    cpu = {"time": time_, "usageNanoCores": 1283746, "usageCoreNanoSeconds": 981237461987}
    return [
        {
            "podRef": {
                "name": f"web-{each // OWNER_SIZE}-6d4b75cb6d-{each:05x}",
                "namespace": f"team-{each // OWNER_SIZE % NAMESPACES}",
                "uid": f"{each:08x}-aaaa-bbbb-cccc-{each:012x}",
            },
            "startTime": time_,
            "containers": [
                {
                    "name": "main",
                    "startTime": time_,
                    "cpu": cpu,
                    "memory": memory(200 * 2**20),
                    "rootfs": file_system(8192),
                    "logs": file_system(123456),
                }
            ],
            "cpu": cpu,
            "memory": memory(201 * 2**20),
            "volume": [{**file_system(12288), "name": "kube-api-access-x7k2p"}],
            "ephemeral-storage": file_system(131648),
            "process_stats": {"process_count": 12},
        }
        for each in range(node * PODS_PER_NODE, (node + 1) * PODS_PER_NODE)
    ]


def summary(node: str, tail: bytes, *, available: int = 8 * GIBI) -> bytes:
    """Return a summary whose timestamps are the current time.

    Args:
        node: the node's name.
        tail: the JSON of the pods.
        available: ``memory.available`` in bytes.
    """
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    fs = (
        f'{{"time":"{now}","availableBytes":{60 * GIBI},"capacityBytes":{100 * GIBI},"usedBytes":{40 * GIBI},'
        '"inodesFree":6000000,"inodes":6553600,"inodesUsed":553600}'
    )
    psi = '{"full":{"total":1,"avg10":0,"avg60":0.1,"avg300":0},"some":{"total":2,"avg10":0,"avg60":0,"avg300":0}}'
    memory = (
        f'{{"time":"{now}","availableBytes":{available},"usageBytes":{20 * GIBI},'
        f'"workingSetBytes":{16 * GIBI - available},"rssBytes":{4 * GIBI},"pageFaults":1,"psi":{psi}}}'
    )
    head = (
        f'{{"node":{{"nodeName":"{node}","systemContainers":[{{"name":"kubelet","startTime":"{now}","memory":{memory}}},'
        f'{{"name":"pods","startTime":"{now}","memory":{memory}}}],"startTime":"{now}","cpu":{{"time":"{now}",'
        f'"usageNanoCores":1}},"memory":{memory},"fs":{fs},"runtime":{{"imageFs":{fs},"containerFs":{fs}}},'
        f'"rlimit":{{"time":"{now}","maxpid":4194304,"curproc":1800}}}},"pods":'
    )
    return head.encode() + tail + b"}"


class Connection:
    """One client, whose requests are answered one after another."""

    def __init__(self, server: Kubelets, tls: ssl.SSLSocket, node: str) -> None:
        self.server, self.tls, self.node = server, tls, node
        self.handshaken = False
        self.received = b""
        self.out = memoryview(b"")
        self.events = selectors.EVENT_READ

    def ready(self) -> None:
        """Continue with what is possible now."""
        try:
            self._advance()
        except ssl.SSLWantReadError:
            self._wait_for(selectors.EVENT_READ)
        except ssl.SSLWantWriteError:
            self._wait_for(selectors.EVENT_WRITE)
        except OSError:
            self._close()

    def _advance(self) -> None:
        if not self.handshaken:
            self.tls.do_handshake()
            self.handshaken = True
            self.server.handshakes += 1
        while True:
            while self.out:
                self.out = self.out[self.tls.send(self.out) :]
            data = self.tls.recv(4096)
            if not data:
                self._close()
                return
            self.received += data
            if b"\r\n\r\n" in self.received:
                self.out = memoryview(self.server.response(self.node, self.received))
                self.received = b""

    def _wait_for(self, events: int) -> None:
        if events != self.events:
            self.events = events
            self.server.selector.modify(self.tls, events, self.ready)

    def _close(self) -> None:
        self.server.selector.unregister(self.tls)
        self.tls.close()


class Kubelets:
    """The kubelets of all nodes."""

    def __init__(self, number: int, first_port: int, certificate: Path, hanging: int) -> None:
        self.selector = selectors.DefaultSelector()
        self.handshakes = self.responses = self.refused = 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._context.num_tickets = 1  # as Go
        self._tails = {
            name_of(each): json.dumps(pods(each), separators=(",", ":")).encode() for each in range(0, number, PRESSED)
        }
        self._nodes = {address_of(each, first_port): name_of(each) for each in range(number)}
        self._hanging = {name_of(each * number // max(1, hanging)) for each in range(hanging)}
        for port in sorted({port for _, port in self._nodes}):
            listener = socket.create_server(("0.0.0.0", port), backlog=1024)
            listener.setblocking(False)
            self.selector.register(listener, selectors.EVENT_READ, lambda each=listener: self._accept(each))

    def serve(self) -> None:
        """Serve until the process is killed."""
        while True:
            for key, _ in self.selector.select():
                key.data()

    def response(self, node: str, request: bytes) -> bytes:
        """Return the response to a request."""
        if node in self._hanging:
            return b""
        if f"Authorization: Bearer {TOKEN}\r\n".encode() not in request:
            self.refused += 1
            return b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
        self.responses += 1
        pressed = node in self._tails
        tail = self._tails[node if pressed else name_of(0)]
        body = summary(node, tail, available=GIBI if pressed else 8 * GIBI)
        # Go sends bodies of unknown length in chunks of 4 KiB or less; here, in two.
        half = len(body) // 2
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        return b"%b%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (head, half, body[:half], len(body) - half, body[half:])

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except BlockingIOError:
                return
            node = self._nodes.get(accepted.getsockname())
            if node is None:
                accepted.close()
                continue
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            tls = self._context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
            connection = Connection(self, tls, node)
            self.selector.register(tls, selectors.EVENT_READ, connection.ready)
            connection.ready()


if __name__ == "__main__":
    kubelets = Kubelets(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    print(time.time(), flush=True)
    kubelets.serve()
