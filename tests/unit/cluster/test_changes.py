"""Logs of changes, and who reads them."""

from __future__ import annotations

import pytest

from trimtab.cluster import changes
from trimtab.cluster.changes import Changes, Reader
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import StorageClass


def test_a_reader_is_told_once_of_what_came_after_it() -> None:
    log: Changes[str] = Changes()
    log.note("before")
    reader = Reader(log)
    assert reader.news() == set()
    for what in ("a", "b", "a"):
        log.note(what)
    assert reader.news() == {"a", "b"}
    assert reader.news() == set()
    assert Reader(log).news() == set()


def test_a_reader_that_was_away_too_long_is_told_to_look_at_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "_LOG", 2)
    log: Changes[str] = Changes()
    reader = Reader(log)
    for what in ("a", "b"):
        log.note(what)
    assert reader.news() == {"a", "b"}
    log.note("c")
    assert reader.news() is None
    log.note("d")
    assert reader.news() == {"d"}
    assert len(log.log) <= 2


def test_shelves_log_what_comes_goes_changes_and_is_undone() -> None:
    snapshot = Snapshot([StorageClass("there")])
    reader = Reader(snapshot.shelves.changes(StorageClass))
    assert reader.news() == set()
    with snapshot.fork():
        snapshot.put(StorageClass("new"))
        snapshot.remove(StorageClass("there"))
        assert reader.news() == {"new", "there"}
    assert reader.news() == {"new", "there"}
