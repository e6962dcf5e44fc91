"""Reports in the status of every custom object that other operators run the same controllers.

    OTHER_OPERATORS.set(operators := OtherOperators())   # the composition root, before it starts tasks
    operators.report("2 operators run the same controllers: …")

The detector of the process calls :meth:`OtherOperators.report`. All status writers add the condition ``Contended`` to
the statuses that controllers build, and a change of the condition wakes all loops, because each loop writes its status.
The condition is added when another operator is detected, and becomes False when no other operator is active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from trimtab.api import reasons
from trimtab.api.conditions import CONTENDED, Condition, find_condition, set_conditions
from trimtab.controller.reporter import condition


class OtherOperators:
    """Stores what the process knows about other active operators.

    Attributes:
        message: a description of the operators; ``""`` if no other operator is active, ``None`` until that is known.
    """

    def __init__(self) -> None:
        self.message: str | None = None
        self._listeners: list[Callable[[], None]] = []

    def report(self, message: str) -> None:
        """Set the description of the operators, and call the listeners if it has changed."""
        if message == self.message:
            return
        self.message = message
        for each in tuple(self._listeners):
            each()

    @contextmanager
    def listening(self, changed: Callable[[], None]) -> Iterator[None]:
        """Call ``changed`` after each change while the context is active."""
        self._listeners.append(changed)
        try:
            yield
        finally:
            self._listeners.remove(changed)

    def add_to(
        self, conditions: tuple[Condition, ...], *, before: Condition | None, now: float, generation: int
    ) -> tuple[Condition, ...]:
        """Return the conditions of a status with the condition Contended.

        While it is unknown whether another operator is active, the condition that the previous process wrote is kept.
        If no other operator was ever active, the condition is not added.

        Args:
            conditions: the conditions of the status.
            before: the condition Contended as it was last reported; ``None`` if it was never reported.
            now: seconds since the epoch.
            generation: generation of the spec that the status describes.
        """
        known = before or find_condition(conditions, CONTENDED)
        if self.message is None or (known is None and not self.message):
            wanted = []
        elif self.message:
            wanted = [condition(CONTENDED, True, reasons.ANOTHER_OPERATOR_ACTIVE, self.message)]
        else:
            wanted = [condition(CONTENDED, False, reasons.NO_OTHER_OPERATOR, "no other operator is active")]
        others = tuple(each for each in conditions if each.type != CONTENDED)
        kept = others if known is None else (*others, known)
        return set_conditions(kept, wanted, now=now, generation=generation)


OTHER_OPERATORS: Final[ContextVar[OtherOperators | None]] = ContextVar("other operators", default=None)
"""What this process knows about other operators. Tasks inherit it from the task that starts them."""


def other_operators() -> OtherOperators:
    """Return the process's knowledge of other operators; it is empty if no detector runs."""
    return OTHER_OPERATORS.get() or OtherOperators()
