"""The store of one kind of objects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import node
from tests.fakes.clock import SetClock
from trimtab.kube.watching.store import Store


def build(name, version=1, uid=None):
    builder = node(name).merge(metadata={"resourceVersion": str(version)})
    return (builder.uid(uid) if uid else builder).build()


@pytest.fixture
def store():
    return Store(clock=SetClock(1000.0))


@pytest.fixture
def recorded(store):
    events = []
    store.subscribe(lambda old, new: events.append((old, new)))
    return events


def test_listener_is_notified_of_add_change_and_remove(store, recorded):
    first, second = build("a", 1), build("a", 2)
    store.apply(first)
    store.apply(second)
    store.remove("a")
    assert recorded == [(None, first), (first, second), (second, None)]
    assert len(store) == 0


def test_stored_version_notifies_no_listener(store, recorded):
    first = build("a", 1)
    store.apply(first)
    store.apply(build("a", 1))
    assert recorded == [(None, first)]
    assert store.get("a") is first


def test_an_object_without_a_version_is_always_new(store, recorded):
    store.apply(node("a").build())
    store.apply(node("a").cordoned().build())
    assert len(recorded) == 2


def test_object_with_another_uid_is_removed_and_added(store, recorded):
    first, second = build("a", 1, uid="one"), build("a", 2, uid="two")
    store.apply(first)
    store.apply(second)
    assert recorded == [(None, first), (first, None), (None, second)]


def test_replace_notifies_of_removed_objects(store, recorded):
    kept, deleted, new = build("kept"), build("gone"), build("new")
    store.replace([kept, deleted])
    recorded.clear()
    store.replace([kept, new])
    assert recorded == [(None, new), (deleted, None)]


def test_removing_an_absent_object_is_a_no_op(store, recorded):
    store.remove("nothing")
    assert recorded == []


def test_replay_notifies_of_existing_objects(store):
    value = build("a")
    store.apply(value)
    recorded, late = [], []
    store.subscribe(lambda old, new: recorded.append((old, new)))
    store.subscribe(lambda old, new: late.append((old, new)), replay=False)
    assert (recorded, late) == ([(None, value)], [])


def test_a_listener_can_leave(store):
    recorded = []
    leave = store.subscribe(lambda old, new: recorded.append(new))
    leave()
    store.apply(build("a"))
    assert recorded == []


def test_store_records_the_time_of_server_activity(store):
    assert store.last_event is None
    store.record_activity()
    assert store.last_event == 1000.0


@given(st.lists(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 3), st.sampled_from("uv")), max_size=5)))
def test_listener_reconstructs_the_objects_of_the_store(lists):
    store = Store()
    followed = {}

    def follow(old, new):
        if old is not None:
            assert followed.pop(old.key) is old
        if new is not None:
            assert new.key not in followed
            followed[new.key] = new

    store.subscribe(follow)
    for values in lists:
        store.replace([build(*value) for value in values])
        assert {key for key, _, _ in values} == set(store.objects)
        assert followed == store.objects
