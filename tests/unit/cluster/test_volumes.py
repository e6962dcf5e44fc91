"""Which placed pods use volumes."""

from __future__ import annotations

from trimtab.cluster.object_store import ChangeReader
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node, Pod, PodSpec, Volume

CLAIM = Volume("persistentVolumeClaim", claim="c")
DISK = Volume("rbd", disk=("pool", "image", "m1", "m2"))


def pod(name: str, *volumes: Volume, node: str = "n", namespace: str = "default") -> Pod:
    return Pod(namespace, name, node=node, spec=PodSpec(volumes=volumes))


def test_claims_and_disks_are_counted_until_the_last_user_is_removed() -> None:
    snapshot = Snapshot([Node("n"), pod("a", CLAIM, CLAIM, DISK, DISK), pod("b", CLAIM, DISK)])
    users = snapshot.volume_users
    assert users.of_claim == {"default/c": 3}
    assert set(users.on[0]) == {"default/a", "default/b"}
    assert set(users.disk_conflicts([DISK])) == {0}
    snapshot.remove(pod("a"))
    assert users.of_claim == {"default/c": 1}
    assert set(users.disk_conflicts([DISK])) == {0}
    snapshot.remove(pod("b"))
    assert (users.of_claim, users.on) == ({}, {})
    assert not set(users.disk_conflicts([DISK]))


def test_pods_without_such_volumes_are_not_indexed() -> None:
    snapshot = Snapshot([Node("n")])
    news = ChangeReader(snapshot.volume_users.changes)
    snapshot.put(pod("a", Volume("emptyDir"), Volume("hostPath")))
    snapshot.put(pod("pending", CLAIM, node=""))
    snapshot.put(pod("lost", CLAIM, node="gone"))
    assert (snapshot.volume_users.on, news.read_changes()) == ({}, set())


def test_claims_of_ephemeral_volumes_are_not_counted() -> None:
    snapshot = Snapshot([Node("n"), pod("a", Volume("ephemeral", name="v"))])
    assert snapshot.volume_users.of_claim == {}
    assert list(snapshot.volume_users.on[0]) == ["default/a"]


def test_slots_of_changed_pods_are_logged_also_on_undo() -> None:
    snapshot = Snapshot([Node("n"), Node("m"), pod("a", CLAIM)])
    news = ChangeReader(snapshot.volume_users.changes)
    slots = {snapshot.nodes.slot_of["n"], snapshot.nodes.slot_of["m"]}
    with snapshot.fork():
        snapshot.move(pod("a", CLAIM), "m")
        assert news.read_changes() == slots
    assert news.read_changes() == slots
