from __future__ import annotations

from tests.fakes.clock import SetClock
from tests.unit.local.machines.objects import machine, owner
from trimtab.local.machines.live import Live
from trimtab.local.machines.picture import UNSEEN_FOR, Picture


def version(live: Live, number: int) -> Live:
    return Live(live.manifest | {"metadata": live.metadata | {"resourceVersion": str(number)}})


def test_what_was_just_made_counts_before_the_watch_shows_it() -> None:
    picture = Picture(SetClock())
    made = version(machine("a"), 20)

    picture.wrote(made)
    assert list(picture.controlled_by(owner().uid)) == [made]

    picture.store.apply(version(machine("a"), 21))
    picture.store.remove(made.key)
    assert list(picture.controlled_by(owner().uid)) == []


def test_an_older_state_of_the_watch_does_not_hide_what_was_written() -> None:
    picture = Picture(SetClock())
    picture.wrote(version(machine("a", phase="Running"), 20))

    picture.store.apply(version(machine("a"), 19))
    found = picture.get("openshift-machine-api/a")
    assert found is not None
    assert found.status == {"phase": "Running"}


def test_what_the_watch_never_shows_is_forgotten() -> None:
    clock = SetClock()
    picture = Picture(clock)
    picture.wrote(machine("a"))

    clock.time += UNSEEN_FOR + 1
    assert picture.get("openshift-machine-api/a") is None


def test_a_machine_whose_deletion_was_asked_for_counts_as_being_deleted() -> None:
    picture = Picture(SetClock())
    live = machine("a")
    picture.store.apply(live)

    picture.deleted(live)
    assert [each.deleting for each in picture.controlled_by(owner().uid)] == [True]
