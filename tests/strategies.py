"""Shared hypothesis strategies. They generate values that the API server accepts."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

from trimtab.kube.frozen import Labels
from trimtab.kube.objects import (
    LabelRequirement,
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Taint,
    Toleration,
)

DECIMAL_SUFFIXES = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
BINARY_SUFFIXES = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

# Few keys and values, so that selectors often match labels.
KEYS = ("app", "tier", "zone", "example.com/pool")
VALUES = ("", "a", "b", "c", "7", "10")
NODE_NAMES = ("n1", "n2", "n3")

label_keys = st.sampled_from(KEYS)
label_values = st.sampled_from(VALUES)


def examples(number: int) -> int:
    """Scale the examples of a property with the profile: all with ``thorough``, as in CI, a quarter with ``quick``."""
    return number * min(100, settings.default.max_examples) // 100


def numbers(*, max_digits: int = 18) -> st.SearchStrategy[str]:
    """Signed decimal numbers of quantities: ``1``, ``-0.50``, ``.5``, ``5.``, ``+007``."""
    digits = st.text("0123456789", min_size=1, max_size=max_digits)
    number = st.one_of(
        digits,
        digits.map(lambda whole: f"{whole}."),
        digits.map(lambda fraction: f".{fraction}"),
        st.tuples(digits, digits).map(".".join),
    )
    return st.tuples(st.sampled_from(["", "+", "-"]), number).map("".join)


def quantities(*, max_digits: int = 18) -> st.SearchStrategy[str]:
    """Any quantity that Kubernetes parses, of moderate length and exponent."""
    exponents = st.tuples(st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), st.integers(0, 30).map(str))
    suffixes = st.one_of(st.sampled_from(DECIMAL_SUFFIXES + BINARY_SUFFIXES), exponents.map("".join))
    return st.tuples(numbers(max_digits=max_digits), suffixes).map("".join)


def labels() -> st.SearchStrategy[Labels]:
    """Label sets over :data:`KEYS` and :data:`VALUES`."""
    return st.dictionaries(label_keys, label_values).map(Labels)


def label_requirements(*, bounds: bool = False) -> st.SearchStrategy[LabelRequirement]:
    """Valid expressions; with ``bounds`` also Gt and Lt, which only nodes have."""
    values = st.lists(label_values, min_size=1, max_size=3).map(tuple)
    kinds = [
        st.builds(LabelRequirement, label_keys, st.sampled_from(["In", "NotIn"]), values),
        st.builds(LabelRequirement, label_keys, st.sampled_from(["Exists", "DoesNotExist"])),
    ]
    if bounds:
        bound = st.sampled_from([("7",), ("10",), ("0",)])
        kinds.append(st.builds(LabelRequirement, label_keys, st.sampled_from(["Gt", "Lt"]), bound))
    return st.one_of(kinds)


def label_selectors() -> st.SearchStrategy[LabelSelector]:
    """Valid label selectors, including the empty one."""
    return st.builds(LabelSelector, labels(), st.lists(label_requirements(), max_size=3).map(tuple))


def node_selector_terms() -> st.SearchStrategy[NodeSelectorTerm]:
    """Valid node selector terms, including the empty one."""
    names = st.sampled_from(NODE_NAMES).map(lambda name: (name,))
    on_name = st.builds(LabelRequirement, st.just("metadata.name"), st.sampled_from(["In", "NotIn"]), names)
    return st.builds(
        NodeSelectorTerm,
        st.lists(label_requirements(bounds=True), max_size=3).map(tuple),
        st.lists(on_name, max_size=1).map(tuple),
    )


def node_selectors() -> st.SearchStrategy[NodeSelector]:
    """Node selectors of up to three terms."""
    return st.builds(NodeSelector, st.lists(node_selector_terms(), max_size=3).map(tuple))


def taints() -> st.SearchStrategy[Taint]:
    """Taints over :data:`KEYS`, :data:`VALUES` and all effects."""
    return st.builds(Taint, label_keys, st.sampled_from(EFFECTS), label_values)


def tolerations() -> st.SearchStrategy[Toleration]:
    """Tolerations that the API server accepts: an empty key only with Exists, no value with Exists."""
    effects = st.sampled_from(("", *EFFECTS))
    return st.one_of(
        st.builds(Toleration, st.sampled_from(("", *KEYS)), st.just("Exists"), st.just(""), effects),
        st.builds(Toleration, label_keys, st.sampled_from(["", "Equal"]), label_values, effects),
    )
