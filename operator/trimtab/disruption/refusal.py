"""Why a pod may not be moved."""

from __future__ import annotations

from msgspec import Struct


class Refusal(Struct, frozen=True):
    """One reason against moving a pod.

    Attributes:
        reason: a code of :mod:`trimtab.api.reasons`.
        message: the same in words, with the names and numbers that were compared.
    """

    reason: str
    message: str
