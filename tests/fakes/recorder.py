"""A recorder of events for tests."""

from __future__ import annotations

from typing import Any

from trimtab.kube.resources import ObjectReference


class FakeRecorder:
    """A recorder that stores events instead of posting them."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def event(self, regarding: ObjectReference, **more: Any) -> None:
        """See :class:`~trimtab.kube.events.recorder.Recorder`."""
        self.events.append({"regarding": regarding, **more})

    def take(self) -> list[tuple[str, str, str]]:
        """Return object, reason and note of each event since the last call."""
        found = [(str(each["regarding"]), each["reason"], each["note"]) for each in self.events]
        self.events.clear()
        return found

    def whom(self) -> list[tuple[str, str]]:
        """Whom and why; since the last time."""
        return [(about, reason) for about, reason, _ in self.take()]
