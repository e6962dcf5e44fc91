"""Selectors: label and field selectors, node selectors and their terms, and the texts people write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.golden import Golden
from tests.strategies import (
    NODE_NAMES,
    label_requirements,
    label_selectors,
    labels,
    node_selector_terms,
    node_selectors,
)
from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects import LabelRequirement, LabelSelector, NodeSelector, NodeSelectorTerm
from trimtab.kube.rules.selectors import (
    FieldRequirement,
    FieldSelector,
    SelectorError,
    label_matcher,
    label_selector_errors,
    matches_fields,
    matches_labels,
    matches_node_selector,
    matches_node_term,
    parse_field_selector,
    parse_label_selector,
    selector_string,
)

WEB = Labels({"app": "web", "tier": "7"})


def where(key: str, operator: str, *values: str) -> LabelRequirement:
    return LabelRequirement(key, operator, values)


@pytest.mark.parametrize(
    ("requirement", "matches"),
    [
        pytest.param(where("app", "In", "web", "db"), True, id="in"),
        pytest.param(where("app", "In", "db"), False, id="in-other"),
        pytest.param(where("zone", "In", "a"), False, id="in-absent"),
        pytest.param(where("zone", "In", ""), False, id="in-absent-is-not-empty"),
        pytest.param(where("app", "NotIn", "db"), True, id="not-in"),
        pytest.param(where("app", "NotIn", "web"), False, id="not-in-same"),
        pytest.param(where("zone", "NotIn", "a"), True, id="not-in-absent"),
        pytest.param(where("app", "Exists"), True, id="exists"),
        pytest.param(where("zone", "Exists"), False, id="exists-absent"),
        pytest.param(where("app", "DoesNotExist"), False, id="does-not-exist"),
        pytest.param(where("zone", "DoesNotExist"), True, id="does-not-exist-absent"),
        pytest.param(where("tier", "Gt", "5"), False, id="bounds-are-for-nodes"),
        pytest.param(where("app", "in", "web"), False, id="operators-have-their-case"),
        pytest.param(where("app", "In"), False, id="in-nothing"),
        pytest.param(where("zone", "NotIn"), False, id="not-in-nothing"),
        pytest.param(where("zone", "DoesNotExist", "a"), False, id="values-where-none-belong"),
        pytest.param(where("zone", "NotIn", "no value!"), False, id="impossible-value"),
        pytest.param(where("-zone", "DoesNotExist"), False, id="impossible-key"),
    ],
)
def test_an_expression_of_a_label_selector(requirement: LabelRequirement, matches: bool) -> None:
    assert matches_labels(LabelSelector(match_expressions=(requirement,)), WEB) is matches


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param(None, False, id="nil-selects-nothing"),
        pytest.param(LabelSelector(), True, id="empty-selects-everything"),
        pytest.param(LabelSelector(Labels(app="web")), True, id="one-label"),
        pytest.param(LabelSelector(Labels(app="db")), False, id="other-value"),
        pytest.param(LabelSelector(Labels(app="web", tier="7")), True, id="two-labels"),
        pytest.param(LabelSelector(Labels(app="web", zone="a")), False, id="one-label-missing"),
        pytest.param(LabelSelector(Labels(app="web"), (where("zone", "Exists"),)), False, id="labels-and-expressions"),
        pytest.param(LabelSelector(Labels(app="no value!")), False, id="impossible-value"),
    ],
)
def test_a_label_selector(selector: LabelSelector | None, matches: bool) -> None:
    assert matches_labels(selector, WEB) is matches


NODE = Labels({"zone": "a", "cpus": "8", "word": "many"})


def term(*expressions: LabelRequirement, fields: tuple[LabelRequirement, ...] = ()) -> NodeSelectorTerm:
    return NodeSelectorTerm(expressions, fields)


@pytest.mark.parametrize(
    ("node_term", "matches"),
    [
        pytest.param(term(), False, id="empty-selects-no-node"),
        pytest.param(term(where("zone", "In", "a")), True, id="in"),
        pytest.param(term(where("zone", "In", "a"), where("cpus", "Exists")), True, id="all-hold"),
        pytest.param(term(where("zone", "In", "a"), where("disk", "Exists")), False, id="one-does-not-hold"),
        pytest.param(term(where("disk", "NotIn", "hdd")), True, id="not-in-absent"),
        pytest.param(term(where("cpus", "Gt", "7")), True, id="greater"),
        pytest.param(term(where("cpus", "Gt", "8")), False, id="not-greater"),
        pytest.param(term(where("cpus", "Gt", "007")), True, id="leading-zeros"),
        pytest.param(term(where("cpus", "Lt", "10")), True, id="less-as-a-number"),
        pytest.param(term(where("cpus", "Lt", "9223372036854775808")), False, id="bound-beyond-64-bits"),
        pytest.param(term(where("cpus", "Gt", "-1")), False, id="a-bound-is-a-label-value"),
        pytest.param(term(where("cpus", "Gt", "7", "6")), False, id="two-bounds"),
        pytest.param(term(where("cpus", "Gt", "some")), False, id="bound-no-integer"),
        pytest.param(term(where("word", "Gt", "7")), False, id="label-no-integer"),
        pytest.param(term(where("disk", "Lt", "7")), False, id="bound-on-absent"),
        pytest.param(term(fields=(where("metadata.name", "In", "n1"),)), True, id="name"),
        pytest.param(term(fields=(where("metadata.name", "In", "n2"),)), False, id="other-name"),
        pytest.param(term(fields=(where("metadata.name", "NotIn", "n2"),)), True, id="not-that-name"),
        pytest.param(term(fields=(where("metadata.name", "In", "n1", "n2"),)), False, id="one-name-only"),
        pytest.param(term(fields=(where("metadata.name", "Exists"),)), False, id="fields-have-two-operators"),
        pytest.param(term(fields=(where("metadata.uid", "NotIn", "x"),)), False, id="no-other-field"),
        pytest.param(
            term(where("zone", "In", "b"), fields=(where("metadata.name", "In", "n1"),)), False, id="labels-and-name"
        ),
        pytest.param(term(where("disk", "Foo")), False, id="unknown-operator"),
    ],
)
def test_a_node_selector_term(node_term: NodeSelectorTerm, matches: bool) -> None:
    assert matches_node_term(node_term, NODE, "n1") is matches


def test_one_term_of_a_node_selector_is_enough() -> None:
    yes, no, broken = term(where("zone", "In", "a")), term(where("zone", "In", "b")), term(where("zone", "Foo"))
    assert matches_node_selector(NodeSelector((no, yes)), NODE, "n1")
    assert matches_node_selector(NodeSelector((broken, term(), yes)), NODE, "n1")
    assert not matches_node_selector(NodeSelector((no, broken)), NODE, "n1")


def test_no_terms_select_no_node_and_no_selector_selects_all() -> None:
    assert not matches_node_selector(NodeSelector(), NODE, "n1")
    assert matches_node_selector(None, NODE, "n1")


@given(label_requirements(), labels())
def test_an_expression_and_its_opposite_never_agree(requirement: LabelRequirement, of: Labels) -> None:
    opposite = {"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}[requirement.operator]
    negated = LabelRequirement(requirement.key, opposite, requirement.values)
    assert matches_labels(LabelSelector(match_expressions=(requirement,)), of) is not matches_labels(
        LabelSelector(match_expressions=(negated,)), of
    )


@given(label_selectors(), labels())
def test_a_selector_is_the_conjunction_of_its_parts(selector: LabelSelector, of: Labels) -> None:
    parts = [LabelSelector(Labels({key: value})) for key, value in selector.match_labels.items()]
    parts += [LabelSelector(match_expressions=(requirement,)) for requirement in selector.match_expressions]
    assert matches_labels(selector, of) is all(matches_labels(part, of) for part in parts)
    assert label_matcher(selector)(dict(of)) is matches_labels(selector, of)


@given(node_selectors(), labels(), st.sampled_from(NODE_NAMES))
def test_a_node_selector_is_the_disjunction_of_its_terms(selector: NodeSelector, of: Labels, name: str) -> None:
    assert matches_node_selector(selector, of, name) is any(matches_node_term(one, of, name) for one in selector.terms)


@given(node_selector_terms(), labels(), st.sampled_from(NODE_NAMES))
def test_a_term_is_the_conjunction_of_its_expressions(whole: NodeSelectorTerm, of: Labels, name: str) -> None:
    parts = [term(requirement) for requirement in whole.match_expressions]
    parts += [term(fields=(requirement,)) for requirement in whole.match_fields]
    assert matches_node_term(whole, of, name) is (
        bool(parts) and all(matches_node_term(part, of, name) for part in parts)
    )


@pytest.mark.parametrize(
    ("text", "selector"),
    [
        pytest.param("", LabelSelector(), id="empty"),
        pytest.param("a=b", LabelSelector(Labels(a="b")), id="equal"),
        pytest.param("a==b", LabelSelector(Labels(a="b")), id="double-equal"),
        pytest.param("a=", LabelSelector(Labels(a="")), id="empty-value"),
        pytest.param("a=b,a=c", LabelSelector(Labels(a="b"), (where("a", "In", "c"),)), id="one-key-twice"),
        pytest.param("a!=b", LabelSelector(NO_LABELS, (where("a", "NotIn", "b"),)), id="not-equal"),
        pytest.param("a in (c, b,b)", LabelSelector(NO_LABELS, (where("a", "In", "b", "c"),)), id="in"),
        pytest.param("a notin (b)", LabelSelector(NO_LABELS, (where("a", "NotIn", "b"),)), id="not-in"),
        pytest.param("a in ()", LabelSelector(NO_LABELS, (where("a", "In", ""),)), id="in-empty-value"),
        pytest.param("a in (,b)", LabelSelector(NO_LABELS, (where("a", "In", "", "b"),)), id="in-with-empty-value"),
        pytest.param("a", LabelSelector(NO_LABELS, (where("a", "Exists"),)), id="exists"),
        pytest.param("!a", LabelSelector(NO_LABELS, (where("a", "DoesNotExist"),)), id="does-not-exist"),
        pytest.param("in in (in)", LabelSelector(NO_LABELS, (where("in", "In", "in"),)), id="words-of-the-grammar"),
        pytest.param(
            " x.io/a = b ,\tc!=d , e in (x,y),!f ",
            LabelSelector(
                Labels({"x.io/a": "b"}),
                (where("c", "NotIn", "d"), where("e", "In", "x", "y"), where("f", "DoesNotExist")),
            ),
            id="all-together",
        ),
    ],
)
def test_a_label_selector_is_read_from_text(text: str, selector: LabelSelector) -> None:
    assert parse_label_selector(text) == selector


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(",a", "found ',', expected a key or '!'", id="leading-comma"),
        pytest.param("a,", "the text ends, expected a key or '!' after ','", id="trailing-comma"),
        pytest.param("a b", "found 'b', expected one of =, ==, !=, in, notin after key 'a'", id="two-words"),
        pytest.param("a=b c", "found 'c', expected ',' or the end", id="word-after-value"),
        pytest.param("a in b", "found 'b', expected '('", id="no-parenthesis"),
        pytest.param("a in (b", "the text ends, expected ')'", id="open-parenthesis"),
        pytest.param("a in (b c)", "found 'c', expected ')'", id="no-comma-between-values"),
        pytest.param("!a=b", "found '=', expected ',' or the end", id="negated-equality"),
        pytest.param("!", "the text ends, expected a key", id="nothing-negated"),
        pytest.param("a>5", "found '>', expected one of =, ==, !=, in, notin", id="bound"),
        pytest.param("a==!", "found '!', expected a value", id="symbol-as-value"),
        pytest.param("-a=b", "key '-a' is not valid: a label key has", id="bad-key"),
        pytest.param("x/y/z", "key 'x/y/z' is not valid", id="two-slashes"),
        pytest.param("/a", "key '/a' is not valid", id="empty-prefix"),
        pytest.param("UP/a", "key 'UP/a' is not valid", id="prefix-no-dns-name"),
        pytest.param("a=b/c", "value 'b/c' is not valid: a label value is", id="bad-value"),
        pytest.param("a=" + "b" * 64, "is not valid", id="long-value"),
        pytest.param("a" * 64, "is not valid", id="long-key"),
    ],
)
def test_a_wrong_label_selector_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_label_selector(text)
    assert message in str(caught.value)
    assert repr(text) in str(caught.value)


@given(label_selectors(), labels())
def test_a_written_selector_means_the_same_when_read(selector: LabelSelector, of: Labels) -> None:
    text = selector_string(selector)
    assert matches_labels(parse_label_selector(text), of) is matches_labels(selector, of)
    assert selector_string(LabelSelector(selector.match_labels, selector.match_expressions[::-1])) == text


def test_inexpressible_selectors_are_rejected() -> None:
    with pytest.raises(SelectorError, match="operator 'Gt' is not allowed; use In, NotIn, Exists or DoesNotExist"):
        selector_string(LabelSelector(match_expressions=(where("a", "Gt", "1"),)))
    with pytest.raises(SelectorError, match="key 'a': In needs at least one value"):
        selector_string(LabelSelector(match_expressions=(where("a", "In"),)))


def test_errors_of_a_selector_name_the_field(golden: Golden) -> None:
    selector = LabelSelector(
        Labels({"-a": "x", "b": "no value!"}),
        (where("c", "In"), where("d", "Gt", "1"), where("e", "Exists", "x"), where("f", "NotIn", "no!")),
    )
    errors = label_selector_errors(selector)
    assert [error.partition(": ")[0] for error in errors] == [
        "matchLabels",
        "matchLabels[b]",
        "matchExpressions[0].values",
        "matchExpressions[1].operator",
        "matchExpressions[2].values",
        "matchExpressions[3].values",
    ]
    golden("\n".join(errors))
    assert not label_selector_errors(LabelSelector())


@given(label_selectors())
def test_a_valid_selector_has_no_errors(selector: LabelSelector) -> None:
    assert not label_selector_errors(selector)


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        pytest.param("", (), id="empty"),
        pytest.param("spec.nodeName=n1", (FieldRequirement("spec.nodeName", "n1"),), id="equal"),
        pytest.param("spec.nodeName==n1", (FieldRequirement("spec.nodeName", "n1"),), id="double-equal"),
        pytest.param(
            "status.phase!=Running", (FieldRequirement("status.phase", "Running", equal=False),), id="differs"
        ),
        pytest.param("spec.nodeName=", (FieldRequirement("spec.nodeName", ""),), id="empty-value"),
        pytest.param("a=1,,b=2,", (FieldRequirement("a", "1"), FieldRequirement("b", "2")), id="empty-terms"),
        pytest.param(r"a=x\,y\=z\\", (FieldRequirement("a", "x,y=z\\"),), id="escapes"),
    ],
)
def test_a_field_selector_is_read_from_text(text: str, requirements: tuple[FieldRequirement, ...]) -> None:
    assert parse_field_selector(text) == FieldSelector(requirements)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("spec.nodeName", "'spec.nodeName' is neither field=value nor field!=value", id="no-operator"),
        pytest.param("=n1", "'=n1' names no field", id="no-field"),
        pytest.param("a=b=c", "in value 'b=c', ", id="unescaped"),
        pytest.param(r"a=\b", "in value '\\\\b', ", id="wrong-escape"),
        pytest.param("a=b\\", "in value 'b\\\\', ", id="open-escape"),
    ],
)
def test_a_wrong_field_selector_is_refused(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_field_selector(text)
    assert message in str(caught.value)


def test_a_field_that_is_not_offered_is_refused() -> None:
    with pytest.raises(SelectorError, match=r"field 'x' is not supported; allowed: metadata\.name, spec\.nodeName"):
        parse_field_selector("x=1", fields={"spec.nodeName", "metadata.name"})


def test_all_terms_of_a_field_selector_must_hold() -> None:
    selector = parse_field_selector("spec.nodeName=n1,status.phase!=Failed")
    assert matches_fields(selector, {"spec.nodeName": "n1", "status.phase": "Running"})
    assert matches_fields(selector, {"spec.nodeName": "n1"})
    assert not matches_fields(selector, {"status.phase": "Running"})
    assert not matches_fields(selector, {"spec.nodeName": "n1", "status.phase": "Failed"})
    assert matches_fields(FieldSelector(), {})
