"""A history that keeps its entries, for tests."""

from __future__ import annotations

from trimtab.api.history_record import HistoryEntry


class FakeHistory:
    """Implements :class:`trimtab.controller.history.History`."""

    def __init__(self) -> None:
        self.entries: list[HistoryEntry] = []

    def add(self, entry: HistoryEntry) -> None:
        """Keep the entry."""
        self.entries.append(entry)
