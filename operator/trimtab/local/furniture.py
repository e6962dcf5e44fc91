"""What users expect of a cluster that is up besides its components: nodes that take pods, and an account for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from typing import Final

from trimtab.kube.api import Conflict, NotFound, Unreachable
from trimtab.kube.resources import NODES, Resource
from trimtab.local.client import Client
from trimtab.local.errors import LocalError
from trimtab.local.health import PATIENCE
from trimtab.local.nodes import numbered, ready, reported

LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease").path(namespace="kube-node-lease")
_ACCOUNT: Final = "/api/v1/namespaces/default/serviceaccounts/default"


def create_nodes(client: Client, count: int) -> None:
    """Make sure that ``node-1`` … ``node-<count>`` exist; those that do are left as they are."""
    for manifest in numbered(count):
        try:
            client.request("POST", NODES.path(), manifest)
        except Conflict:
            continue


def release_nodes(client: Client) -> None:
    """Delete the leases of all nodes, so that a new kwok takes the nodes over at once.

    A kwok only plays the nodes whose lease it holds, and each run of it is another holder: left alone, nodes would lie
    idle until the leases of the run before expire, and pods that are deleted there would stay Terminating.
    """
    client.request("DELETE", LEASES, timeout=120)


def await_nodes(client: Client, names: Set[str], *, untainted: bool = True) -> None:
    """Wait until these nodes are Ready; others may be as their owners want them.

    Args:
        client: of the cluster.
        names: of the nodes.
        untainted: whether somebody takes their taint not-ready away, so that this is waited for, too.

    Raises:
        LocalError: they are not after two minutes.
    """
    able = ready if untainted else reported

    def hold() -> bool:
        listed = client.request("GET", NODES.path(), params={"resourceVersion": "0"})["items"]
        return names <= {live["metadata"]["name"] for live in listed if able(live)}

    if names:
        _await(hold, "the nodes are not Ready")


def await_account(client: Client) -> None:
    """Wait until pods can be created in the namespace ``default``: the API server wants their account to exist.

    Raises:
        LocalError: it does not after two minutes.
    """

    def hold() -> bool:
        client.request("GET", _ACCOUNT)
        return True

    _await(hold, "there is no service account default/default")


def _await(hold: Callable[[], bool], failure: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if hold():
                return
        except (NotFound, Unreachable):
            pass
        if time.monotonic() > deadline:
            raise LocalError(f"{failure} after {PATIENCE:.0f} s; trimtab local status shows where the logs are")
        time.sleep(0.2)
