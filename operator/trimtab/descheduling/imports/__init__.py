"""Converts policies of other deschedulers: descheduler/v1alpha1, descheduler/v1alpha2, OpenShift's KubeDescheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trimtab.api.descheduler_policy import KIND
from trimtab.descheduling.imports import openshift, v1alpha1, v1alpha2
from trimtab.descheduling.imports.draft import ImportResult

Importer = Callable[..., ImportResult]
"""A function that converts a decoded document to policies.

Its parameters are the document as plain data, and ``source``, its name in messages. It raises
:class:`trimtab.api.decode.InvalidObject` if the document is invalid.
"""

FORMATS: Final[dict[tuple[str, str], Importer]] = {
    (KIND, v1alpha1.FOREIGN_VERSION): v1alpha1.import_policy,
    (KIND, v1alpha2.FOREIGN_VERSION): v1alpha2.import_policy,
    (openshift.KIND, openshift.FOREIGN_VERSION): openshift.import_policy,
}
"""Maps kind and API version of a document to the function that converts it."""
