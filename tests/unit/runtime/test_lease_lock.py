import pytest

from tests.fakes.api import FakeApi
from tests.fakes.clock import START
from trimtab.kube.api import Conflict
from trimtab.runtime.leader_election.lease_lock import Lease, LeaseLock

PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/trimtab"


def test_lease_transitions_count_holder_changes():
    first = Lease().held_by("a", duration=15, now=START)
    assert (first.holder, first.transitions, first.acquired) == ("a", 0, "2027-01-15T08:00:00.000000Z")
    stored = Lease(holder="a", transitions=3, resource_version="7", acquired="then")
    taken = stored.held_by("b", duration=15, now=START)
    assert (taken.holder, taken.transitions, taken.acquired) == ("b", 4, "2027-01-15T08:00:00.000000Z")


def test_renewal_keeps_acquire_time():
    stored = Lease(holder="a", transitions=3, resource_version="7", acquired="then", renewed="then")
    renewed = stored.held_by("a", duration=15, now=START)
    assert (renewed.acquired, renewed.transitions, renewed.resource_version) == ("then", 3, "7")
    assert renewed.renewed == "2027-01-15T08:00:00.000000Z"


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": None, "leaseDurationSeconds": None}])
def test_lease_with_empty_spec_has_no_holder(spec):
    assert Lease.from_json({"metadata": {"resourceVersion": "1"}, "spec": spec}) == Lease(
        resource_version="1", metadata={"resourceVersion": "1"}
    )


async def test_written_lease_is_read_back():
    lock = LeaseLock(FakeApi(), namespace="ns", name="trimtab")
    assert await lock.read(timeout=1) is None
    written = await lock.write(Lease().held_by("a", duration=15, now=START), timeout=1)
    assert await lock.read(timeout=1) == written
    assert written.resource_version


async def test_a_write_on_an_old_state_conflicts():
    api = FakeApi()
    lock = LeaseLock(api, namespace="ns", name="trimtab")
    first = await lock.write(Lease().held_by("a", duration=15, now=START), timeout=1)
    await lock.write(first.held_by("b", duration=15, now=START), timeout=1)
    with pytest.raises(Conflict):
        await lock.write(first.held_by("c", duration=15, now=START), timeout=1)
    with pytest.raises(Conflict):
        await lock.write(Lease().held_by("d", duration=15, now=START), timeout=1)
    assert api.objects[PATH]["spec"]["holderIdentity"] == "b"


async def test_metadata_of_others_survives_renewal_and_release():
    api = FakeApi()
    api.put(PATH, {"metadata": {"name": "trimtab", "namespace": "ns", "labels": {"app": "trimtab"}}})
    lock = LeaseLock(api, namespace="ns", name="trimtab")
    read = await lock.read(timeout=1)
    held = await lock.write(read.held_by("a", duration=15, now=START), timeout=1)
    released = await lock.write(held.released(now=START), timeout=1)
    assert api.objects[PATH]["metadata"]["labels"] == {"app": "trimtab"}
    assert (released.holder, released.duration, released.transitions) == ("", 1, 1)
