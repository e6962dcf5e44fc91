"""Which proxy leads to the API server, by the rules that kubectl follows (Go's httpproxy package).

Python's own reading of ``NO_PROXY`` knows neither address ranges (``10.0.0.0/8``, how clusters exclude their service
network) nor that loopback needs no proxy, so a local or in-cluster server would be sought at the proxy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit


def proxy_for(server: str, *, environ: Mapping[str, str] = os.environ) -> str:
    """The proxy's URL for a server's URL, or ``""`` for a direct connection."""
    url = urlsplit(server)
    name = f"{url.scheme}_proxy"
    proxy = environ.get(name.upper()) or environ.get(name) or ""
    excluded = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    host = (url.hostname or "").rstrip(".")
    if not proxy or is_loopback(host):
        return ""
    port = url.port or (443 if url.scheme == "https" else 80)
    if any(_excludes(rule.strip().lower(), host, port) for rule in excluded.split(",")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def is_loopback(host: str) -> bool:
    """Whether a URL's host is this machine, so that what is sent there is seen by nobody else."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _excludes(rule: str, host: str, port: int) -> bool:
    if rule == "*":
        return True
    if not rule:
        return False
    try:
        return ip_address(host) in ip_network(rule, strict=False)
    except ValueError:  # not both an address: a name, with a port or without
        pass
    name, _, wanted = rule.rpartition(":")
    if name and wanted.isdigit():
        if int(wanted) != port:
            return False
        rule = name.strip("[]")
    if rule.startswith(("*.", ".")):  # subdomains only
        return host.endswith(rule.lstrip("*"))
    return host == rule or host.endswith(f".{rule}")
