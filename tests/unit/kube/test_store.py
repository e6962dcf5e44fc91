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
def told(store):
    events = []
    store.subscribe(lambda old, new: events.append((old, new)))
    return events


def test_an_object_is_told_when_it_comes_changes_and_goes(store, told):
    first, second = build("a", 1), build("a", 2)
    store.apply(first)
    store.apply(second)
    store.remove("a")
    assert told == [(None, first), (first, second), (second, None)]
    assert len(store) == 0


def test_a_state_that_is_there_already_is_not_told_again(store, told):
    first = build("a", 1)
    store.apply(first)
    store.apply(build("a", 1))
    assert told == [(None, first)]
    assert store.get("a") is first


def test_an_object_without_a_version_is_always_new(store, told):
    store.apply(node("a").build())
    store.apply(node("a").cordoned().build())
    assert len(told) == 2


def test_another_object_of_the_same_name_is_told_as_such(store, told):
    first, second = build("a", 1, uid="one"), build("a", 2, uid="two")
    store.apply(first)
    store.apply(second)
    assert told == [(None, first), (first, None), (None, second)]


def test_replacing_tells_what_vanished(store, told):
    kept, gone, new = build("kept"), build("gone"), build("new")
    store.replace([kept, gone])
    told.clear()
    store.replace([kept, new])
    assert told == [(None, new), (gone, None)]


def test_removing_what_is_not_there_is_no_matter(store, told):
    store.remove("nothing")
    assert told == []


def test_a_listener_is_first_told_what_is_there(store):
    value = build("a")
    store.apply(value)
    told, late = [], []
    store.subscribe(lambda old, new: told.append((old, new)))
    store.subscribe(lambda old, new: late.append((old, new)), replay=False)
    assert (told, late) == ([(None, value)], [])


def test_a_listener_can_leave(store):
    told = []
    leave = store.subscribe(lambda old, new: told.append(new))
    leave()
    store.apply(build("a"))
    assert told == []


def test_a_store_knows_when_it_last_heard_something(store):
    assert store.last_event is None
    store.heard()
    assert store.last_event == 1000.0


@given(st.lists(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 3), st.sampled_from("uv")), max_size=5)))
def test_who_follows_the_changes_has_the_same_objects(lists):
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
