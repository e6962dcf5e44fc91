"""Every format of policies that is read besides trimtab's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trimtab.api.descheduler_policy import KIND
from trimtab.descheduling.imports import openshift, v1alpha1, v1alpha2
from trimtab.descheduling.imports.draft import Imported

Importer = Callable[..., Imported]
"""Takes plain data and ``source``; raises :class:`trimtab.api.decode.InvalidObject`."""

FORMATS: Final[dict[tuple[str, str], Importer]] = {
    (KIND, v1alpha1.FOREIGN_VERSION): v1alpha1.import_policy,
    (KIND, v1alpha2.FOREIGN_VERSION): v1alpha2.import_policy,
    (openshift.KIND, openshift.FOREIGN_VERSION): openshift.import_policy,
}
"""Kind and API version to what reads it; a further format is one more line."""
