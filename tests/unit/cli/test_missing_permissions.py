"""All kinds that the user may not list."""

from __future__ import annotations

from tests.fakes.api import FakeApi
from trimtab.cli.missing_permissions import forbidden_actions
from trimtab.kube.api import Unreachable


async def test_all_forbidden_kinds_are_found_and_the_refused_one_is_first() -> None:
    api = FakeApi(may=lambda attributes: attributes["resource"] not in ("nodes", "pods", "csinodes"))

    assert await forbidden_actions(api, "list pods") == ("list pods", "list nodes", "list csinodes.storage.k8s.io")


async def test_without_access_reviews_only_the_refused_action_is_known() -> None:
    class Unanswered(FakeApi):
        async def request(self, *_arguments: object, **_options: object) -> None:
            raise Unreachable("no response")

    assert await forbidden_actions(Unanswered(), "list pods") == ("list pods",)
