"""The conversion of descheduler/v1alpha2 against the decoder of sigs.k8s.io/descheduler.

``python -m tests.descheduler_differential.decoding FILE…`` compares files, and builds the decoder where it has to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.descheduler_differential.binary import DECODER, existing_binary
from tests.descheduler_differential.decoding import compare, decode
from tests.descheduler_differential.suite import policies_of
from tests.foreign_policies import NEW
from trimtab.api.decode import InvalidObject
from trimtab.descheduling.imports.v1alpha2 import import_policy

SEEDS = range(1, 151)
DATA = {"matchLabels", "thresholds", "targetThresholds"}


def with_unknown_key(policy: Any) -> Iterator[Any]:
    """Yield the policy with an unknown key in one of its mappings, for each mapping whose keys are not data."""

    def mappings(value: Any) -> Iterator[dict[str, Any]]:
        if isinstance(value, dict):
            yield value
        children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, item in children:
            if key not in DATA:
                yield from mappings(item)

    spoilt = msgspec.json.decode(msgspec.json.encode(policy))
    for each in mappings(spoilt):
        each["xyzzy"] = 1
        yield msgspec.json.decode(msgspec.json.encode(spoilt))
        del each["xyzzy"]


@pytest.mark.live
def test_random_policies_have_the_fields_that_upstream_decodes() -> None:
    binary = existing_binary(DECODER)
    if binary is None:
        pytest.skip("the decoder has not been built here; the module tests.descheduler_differential.decoding builds it")
    policies = [policy for seed in SEEDS for policy in policies_of(seed, 4)]
    found = [compare(decoded, policy) for decoded, policy in zip(decode(binary, policies), policies, strict=True)]
    assert [each for each in found if each[0] != "equal"] == []


@pytest.mark.live
def test_unknown_keys_are_refused_exactly_where_upstream_refuses_them() -> None:
    binary = existing_binary(DECODER)
    if binary is None:
        pytest.skip("the decoder has not been built here; the module tests.descheduler_differential.decoding builds it")
    policies = list(with_unknown_key(NEW))
    verdicts = []
    for decoded, policy in zip(decode(binary, policies), policies, strict=True):
        try:
            import_policy(policy)
        except InvalidObject:
            accepted = False
        else:
            accepted = True
        verdicts.append((accepted, decoded.policy is not None))
    assert {ours for ours, _ in verdicts} == {True, False}
    assert [index for index, (ours, theirs) in enumerate(verdicts) if ours != theirs] == []
