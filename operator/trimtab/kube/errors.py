"""The error for invalid input: a file, a custom resource or a flag with a value that is not allowed.

Code that reads input raises :class:`InputError`. The command line prints it as one line and exits with status 2. The
operator reports it in the status of the object. Errors of the API server are in :mod:`trimtab.kube.api`.
"""

from __future__ import annotations


class InputError(ValueError):
    """Invalid input. The message helps its author to correct it.

    Attributes:
        source: the origin of the input: a file path, ``-`` for standard input, ``cluster``, or ``""`` if unknown.
        object: the object as ``Kind/name`` or ``Kind/namespace/name``, or ``""`` if it has no name.
        field: the path of the field as in kubectl, ``spec.strategies.RemoveDuplicates``, or ``""`` for the whole
            object.
        message: a description of the invalid value and the allowed values, excluding source, object and field.
    """

    def __init__(self, message: str, *, source: str = "", object: str = "", field: str = "") -> None:  # noqa: A002
        super().__init__(message)
        self.source = source
        self.object = object
        self.field = field
        self.message = message

    def __str__(self) -> str:
        """Return ``source: object: field: message``, omitting empty parts."""
        return ": ".join(part for part in (self.source, self.object, self.field, self.message) if part)
