"""The rules that a replica applies: those of the PlacementAdmission named ``default``, or of its last valid version.

If a new version of the object is invalid, the rules of the last valid version remain in force, so that a mistake
neither refuses nor admits everything. A replica that starts while the object is invalid has no valid version. It is not
ready, and the API server applies the failure policies of the webhooks that are registered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from trimtab.api.decode import decode_placement_admission
from trimtab.api.placement_admission import NAME, PlacementAdmission, PlacementAdmissionSpec
from trimtab.kube.errors import InputError
from trimtab.kube.objects.meta import ClusterScoped

log = logging.getLogger(__name__)

C = TypeVar("C")


class StoredAdmission(ClusterScoped, frozen=True):
    """A PlacementAdmission as the API server stores it.

    Attributes:
        generation: its generation.
        admission: the decoded object; ``None`` if it is invalid.
        problem: why it is invalid; empty if it is valid.
    """

    generation: int = 0
    admission: PlacementAdmission | None = None
    problem: str = ""


def decode_stored_admission(raw: Any) -> StoredAdmission:
    """Decode a PlacementAdmission from JSON. Its spec may be invalid.

    Raises:
        InputError: it is not an object of the API server.
    """
    try:
        body = msgspec.json.decode(raw)
        metadata = body["metadata"]
        identity = (str(metadata["name"]), str(metadata.get("uid", "")), str(metadata.get("resourceVersion", "")))
        generation = int(metadata.get("generation", 0))
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError, ValueError) as error:
        raise InputError(f"not a PlacementAdmission: {error}") from error
    try:
        return StoredAdmission(*identity, generation, decode_placement_admission(body))
    except InputError as problem:
        return StoredAdmission(*identity, generation, None, str(problem))


class ActiveRules(Generic[C]):
    """The rules in force. Subscribe :meth:`observe` to the store of PlacementAdmissions.

    Args:
        compile_rules: compiles the rules of a spec. It may raise :class:`~trimtab.kube.errors.InputError`.
        changed: called after each change.

    Attributes:
        latest: the latest version of the object; ``None`` if there is none.
        applied: the last valid version, which is in force; ``None`` if there is none.
        rules: the compiled rules of :attr:`applied`.
        problem: why the latest version is invalid; empty if it is valid.
    """

    def __init__(
        self, compile_rules: Callable[[PlacementAdmissionSpec], C], *, changed: Callable[[], None] = lambda: None
    ) -> None:
        self.latest: StoredAdmission | None = None
        self.applied: StoredAdmission | None = None
        self.rules: C | None = None
        self.problem = ""
        self._compile = compile_rules
        self._changed = changed

    @property
    def spec(self) -> PlacementAdmissionSpec | None:
        """Return the spec that is in force; ``None`` if there is none."""
        return None if self.applied is None or self.applied.admission is None else self.applied.admission.spec

    def check(self) -> str | None:
        """Return why this replica cannot apply the rules; ``None`` if it can, or if there are none."""
        if self.latest is not None and self.applied is None:
            return f"the PlacementAdmission is invalid: {self.problem}"
        return None

    def observe(self, old: StoredAdmission | None, new: StoredAdmission | None) -> None:
        """Apply a change of the store."""
        if (new or old or self.latest or StoredAdmission("")).name != NAME:
            return
        if new is None:
            self.latest, self.applied, self.rules, self.problem = None, None, None, ""
            log.info("PlacementAdmission default was deleted; the webhooks no longer apply any rules")
        elif old is None or self.latest is None or new.generation != self.latest.generation:
            self._update(new)
        else:
            self.latest = new  # only the status or the metadata changed
        self._changed()

    def _update(self, new: StoredAdmission) -> None:
        self.latest, rules, self.problem = new, None, new.problem
        if new.admission is not None:
            try:
                rules = self._compile(new.admission.spec)
            except InputError as problem:
                self.problem = str(problem)
        if rules is None:
            force = "the previous version remains in effect" if self.applied is not None else "no rule is in effect"
            log.error("PlacementAdmission default is invalid: %s; %s", self.problem, force)
            return
        self.applied, self.rules, self.problem = new, rules, ""
        log.info("Applying generation %d of PlacementAdmission default", new.generation)
