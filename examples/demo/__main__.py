"""`make demo`: runs the operator on a real control plane, and exits with status 0 if every violation is resolved."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import yaml

from examples.demo.look import View, table
from examples.demo.scene import NAMESPACE, Scene
from trimtab_local.client import Client
from trimtab_local.cluster import LocalCluster
from trimtab_local.install import apply, install, operator, start_operator, wait_for
from trimtab_local.progress import PlainProgress

POLICIES: Final = Path(__file__).parent / "policies"
COLLECTION: Final = "/apis/trimtab.dev/v1alpha1/deschedulerpolicies"
EVENTS: Final = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"


KEPT: Final = "trimtab-demo"
"""The name of the cluster that ``--keep`` leaves running."""


def main() -> int:
    """Run the demo, and stop everything that it started in any case, except with ``--keep``."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cluster and the operator running")
    started = time.monotonic()
    good = _keep() if parser.parse_args().keep else _run()
    _say(f"{'Done' if good else 'FAILED'} after {time.monotonic() - started:.0f} s.")
    return 0 if good else 1


def _run() -> bool:
    with tempfile.TemporaryDirectory(prefix="trimtab-demo-") as folder:
        cluster = LocalCluster("demo", directory=Path(folder) / "cluster", progress=PlainProgress(sys.stdout))
        try:
            cluster.up(nodes=0, die_with_parent=True)
            return _play(cluster, Path(folder))
        finally:
            cluster.down()


def _keep() -> bool:
    cluster = LocalCluster(KEPT, progress=PlainProgress(sys.stdout))
    if cluster.known() is not None:
        _say(f"The cluster {KEPT} of an earlier demo exists. Stop it with: trimtab local down --name {KEPT}")
        return False
    try:
        cluster.up(nodes=0)
        with tempfile.TemporaryDirectory(prefix="trimtab-demo-") as folder:
            good = _play(cluster, Path(folder))
        log = start_operator(cluster)
    except BaseException:
        cluster.down()
        raise
    _say(f"The cluster and the operator keep running. The operator's log: {log}")
    _list(
        "Look around, and stop:",
        [
            f"export KUBECONFIG={cluster.kubeconfig}",
            "kubectl get deschedulerpolicies",
            "trimtab status",
            f"trimtab local down --name {KEPT}",
        ],
    )
    return good


def _play(cluster: LocalCluster, folder: Path) -> bool:
    client = cluster.client
    _say("Setting the scene: the real scheduler places pods badly")
    Scene(client).set()
    install(cluster, progress=PlainProgress(sys.stdout))
    before = View.take(client)
    _list("Wrong before:", before.violations())
    _say("Starting the operator under the chart's RBAC, then: kubectl apply -f examples/demo/policies")
    with operator(cluster, folder, "--log-format=json") as running:
        for file in sorted(POLICIES.glob("*.yaml")):
            apply(client, COLLECTION, yaml.safe_load(file.read_text()))
        try:
            wait_for(lambda: _good(client), "every violation to be repaired", alive=running.running, timeout=120)
            wait_for(lambda: _reported(client), "the policies' status", alive=running.running, timeout=60)
        except TimeoutError as error:
            _say(f"{error}; the operator's log:\n{running.log.read_text()[-4000:]}")
        after = View.take(client)
        _report(client, before, after)
        ended = running.stop()
    return _verdict(before, after, ended)


def _good(client: Client) -> bool:
    view = View.take(client)
    return view.settled and not view.violations()


def _reported(client: Client) -> bool:
    policies = client.request("GET", COLLECTION)["items"]
    return all(policy.get("status", {}).get("lastRun") for policy in policies)


def _report(client: Client, before: View, after: View) -> None:
    print("\n" + table(before, after), flush=True)
    events = client.request("GET", EVENTS)["items"]
    ours = [event for event in events if event.get("reportingController", "").startswith("trimtab.dev/")]
    ours.sort(key=lambda event: event["eventTime"])
    _list("Events:", [_event(event) for event in ours])
    kept = []
    for policy in client.request("GET", COLLECTION)["items"]:
        status, name = policy.get("status", {}), policy["metadata"]["name"]
        ready = next((c["message"] for c in status.get("conditions", ()) if c["type"] == "Ready"), "")
        _say(f"Policy {name}: {status.get('evicted', 0)} evicted so far; last cycle {ready}")
        kept += [
            f"{pod['namespace']}/{pod['pod']}: {pod['reason']}: {pod['message']}" for pod in status.get("kept", ())
        ]
    _list("Kept, and why:", sorted(kept))


def _event(event: dict[str, Any]) -> str:
    return (
        f"{event['type']} {event['reason']} {event['regarding']['kind']}/{event['regarding']['name']}: {event['note']}"
    )


def _verdict(before: View, after: View, ended: int) -> bool:
    found, left = before.violations(), after.violations()
    untouched = before.protected() == after.protected()
    _say(
        f"Violations found {len(found)}, repaired {len(found) - len(left)}; protected pods touched: "
        f"{'none' if untouched else 'SOME'}; the operator ended with {ended}."
    )
    _list("Still wrong:", left)
    return bool(found) and not left and untouched and ended == 0


def _say(text: str) -> None:
    print(f"\n==> {text}", flush=True)


def _list(title: str, lines: list[str]) -> None:
    if lines:
        _say(title)
        print("\n".join(f"    {line}" for line in lines), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
