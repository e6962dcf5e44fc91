"""What informers feed, without informers: stores, the lister and the shared snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from trimtab.cluster.lister import Lister
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import (
    KubeObject,
    Lease,
    Node,
    Pod,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)
from trimtab.kube.watching.store import Store

T = TypeVar("T")


class Caches:
    """The caches of one process; :meth:`apply` is the watch."""

    def __init__(self) -> None:
        self.nodes, self.pods, self.leases = Store[Node](), Store[Pod](), Store[Lease]()
        self.shared = SharedSnapshot()
        self._stores: dict[type, Store[Any]] = {Node: self.nodes, Pod: self.pods, Lease: self.leases}
        self._stores |= {kind: Store() for kind in (ReplicaSet, StatefulSet, ReplicationController)}
        replicated = {kind.__name__: self._stores[kind] for kind in (ReplicaSet, StatefulSet, ReplicationController)}
        self.lister = Lister(self.nodes, self.pods, self.leases, replicated)
        for store in self._stores.values():
            store.subscribe(self.shared.apply)

    def apply(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """A change as a watch delivers it."""
        changed = new if new is not None else old
        if changed is None:
            return
        store = self._stores.get(type(changed))
        if store is None:
            self.shared.apply(old, new)
        elif new is None:
            store.remove(changed.key)
        else:
            store.apply(new)

    def ask(self, question: Callable[[Snapshot], T]) -> T:
        """What the snapshot says, while no planner has it."""
        assert not self.shared._borrowers.active
        return question(self.shared._snapshot)
