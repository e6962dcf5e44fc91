"""What one try came to."""

from __future__ import annotations

from msgspec import Struct


class Answer(Struct, frozen=True):
    """What a try came to.

    Attributes:
        result: how the action ends if it is not tried again; a constant of :mod:`trimtab.disruption.outcome`.
        reason: code of :mod:`trimtab.api.reasons`.
        message: in words.
        again: whether another try makes sense.
        doubt: whether the server may have evicted the pod, or may still do so, though it has not said so.
        retry_after: seconds that the server asks to wait.
    """

    result: str
    reason: str
    message: str
    again: bool = False
    doubt: bool = False
    retry_after: float | None = None
