"""The one error for bad input: a file, a custom resource or a flag that says something it may not say.

Whoever reads input raises it, the command line prints it as one line and ends with status 2, the operator puts it into
the object's status. Failures of the API server are not input: see :mod:`trimtab.kube.api`.
"""

from __future__ import annotations


class InputError(ValueError):
    """Input that cannot be used, told so that its author can mend it.

    Attributes:
        source: where it came from: a file's path, ``-`` for standard input, ``cluster``; ``""`` where nobody knows.
        object: which object in it, as ``Kind/name`` or ``Kind/namespace/name``; ``""`` where it has none.
        field: the field's path as kubectl writes it, ``spec.strategies.RemoveDuplicates``; ``""`` for the whole object.
        message: what is wrong and what is allowed, without repeating the three above.
    """

    def __init__(self, message: str, *, source: str = "", object: str = "", field: str = "") -> None:  # noqa: A002
        super().__init__(message)
        self.source = source
        self.object = object
        self.field = field
        self.message = message

    def __str__(self) -> str:
        """``source: object: field: message``, leaving out what is not known."""
        return ": ".join(part for part in (self.source, self.object, self.field, self.message) if part)
