"""Logs of changes, and who reads them."""

from __future__ import annotations

import pytest

from trimtab.cluster import object_store
from trimtab.cluster.object_store import ChangeLog, ChangeReader
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import StorageClass


def test_reader_returns_each_change_once() -> None:
    log: ChangeLog[str] = ChangeLog()
    log.append("before")
    reader = ChangeReader(log)
    assert reader.read_changes() == set()
    for what in ("a", "b", "a"):
        log.append(what)
    assert reader.read_changes() == {"a", "b"}
    assert reader.read_changes() == set()
    assert ChangeReader(log).read_changes() == set()


def test_reader_behind_a_truncated_log_must_resync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_LOG", 2)
    log: ChangeLog[str] = ChangeLog()
    reader = ChangeReader(log)
    for what in ("a", "b"):
        log.append(what)
    assert reader.read_changes() == {"a", "b"}
    log.append("c")
    assert reader.read_changes() is None
    log.append("d")
    assert reader.read_changes() == {"d"}
    assert len(log.log) <= 2


def test_object_store_logs_changes_and_undone_changes() -> None:
    snapshot = Snapshot([StorageClass("there")])
    reader = ChangeReader(snapshot.objects.changes(StorageClass))
    assert reader.read_changes() == set()
    with snapshot.fork():
        snapshot.put(StorageClass("new"))
        snapshot.remove(StorageClass("there"))
        assert reader.read_changes() == {"new", "there"}
    assert reader.read_changes() == {"new", "there"}
