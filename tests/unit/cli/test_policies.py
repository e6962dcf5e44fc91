"""Policies from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.cli.policies import load_policies
from trimtab.kube.errors import InputError


def own(name: str, **spec: object) -> str:
    lines = [
        "apiVersion: trimtab.dev/v1alpha1",
        "kind: DeschedulerPolicy",
        f"metadata: {{name: {name}}}",
        "spec:",
        "  strategies: {RemoveDuplicates: {}}",
        *(f"  {key}: {value}" for key, value in spec.items()),
    ]
    return "\n".join(lines) + "\n"


UPSTREAM = """\
apiVersion: descheduler/v1alpha1
kind: DeschedulerPolicy
strategies:
  RemoveDuplicates: {enabled: true}
"""


@pytest.fixture
def file(tmp_path: Path):
    def write(text: str, name: str = "policy.yaml") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def names(*sources: str) -> list[str]:
    return [policy.name for policy in load_policies(sources)]


def test_a_file_may_hold_several_documents_and_lists(file) -> None:
    listed = "apiVersion: v1\nkind: List\nitems:\n- " + own("c").replace("\n", "\n  ").rstrip()

    assert names(file(own("b") + "---\n" + own("a") + "---\n" + listed)) == ["a", "b", "c"]


def test_the_order_of_files_has_no_say(file) -> None:
    first, second = file(own("b"), "1.yaml"), file(own("a"), "2.yaml")

    assert names(first, second) == names(second, first) == ["a", "b"]


def test_upstream_policy_files_are_read(file) -> None:
    (policy,) = load_policies([file(UPSTREAM)])

    assert policy.name == "default"
    assert policy.spec.strategies.remove_duplicates is not None


PROFILES = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
evictionFailureEventNotification: false
profiles:
- name: b
  plugins: {balance: {enabled: [RemoveDuplicates]}}
- name: a
  plugins: {balance: {enabled: [RemoveDuplicates]}}
"""


def test_a_file_of_profiles_is_several_policies_and_what_is_left_out_of_it_is_told(file, capsys) -> None:
    path = file(PROFILES)

    assert names(path) == ["a", "b"]
    assert capsys.readouterr().err == (
        f"trimtab: warning: {path}: evictionFailureEventNotification: has no effect: evictions that fail are always "
        "told as events\n"
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: 'kind: Other', b: 'x: [', c: ''}",
            "ConfigMap/x: holds no policy: no key of data has a DeschedulerPolicy",
            id="a ConfigMap of something else",
        ),
        pytest.param(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {b: 'kind: DeschedulerPolicy'}",
            " (data[b]): DeschedulerPolicy of no apiVersion is no policy",
            id="a key of a ConfigMap with a policy of no version",
        ),
        pytest.param(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n"
            "  a: '{apiVersion: descheduler/v1alpha1, kind: DeschedulerPolicy, strategies: {RemoveDuplicates: "
            "{enabled: true}}}'\n"
            "  b: 'kind: DeschedulerPolicy, profiles: ['",
            " (data[b]): is not YAML",
            id="a key of a ConfigMap with a policy that cannot be read, beside one that can",
        ),
        pytest.param(
            "apiVersion: v1\nkind: Secret\nmetadata: {name: x}",
            "Secret of v1 is no policy; allowed are DeschedulerPolicy of trimtab.dev/v1alpha1, DeschedulerPolicy "
            "of descheduler/v1alpha1, DeschedulerPolicy of descheduler/v1alpha2, KubeDescheduler of "
            "operator.openshift.io/v1 and ConfigMap of v1",
            id="other kind",
        ),
        pytest.param(
            "apiVersion: descheduler/v1alpha3\nkind: DeschedulerPolicy",
            "DeschedulerPolicy of descheduler/v1alpha3 is no policy",
            id="other version",
        ),
        pytest.param("kind: DeschedulerPolicy", "DeschedulerPolicy of no apiVersion is no policy", id="no version"),
        pytest.param("{}", "an object without kind of no apiVersion is no policy", id="empty object"),
        pytest.param("", "no policy found", id="empty file"),
        pytest.param("- a", "holds no Kubernetes object", id="a list"),
        pytest.param("a: [", "is not YAML", id="broken YAML"),
        pytest.param(own("a", mode="Dry"), "DeschedulerPolicy/a: spec.mode:", id="wrong value"),
        pytest.param(own("a") + "---\n" + own("a"), "DeschedulerPolicy/a: is there twice: in", id="same name"),
    ],
)
def test_what_is_no_usable_policy_is_refused_with_its_place(file, text, told) -> None:
    path = file(text)

    with pytest.raises(InputError) as caught:
        load_policies([path])

    assert str(caught.value).startswith(path)
    assert told in str(caught.value)


def test_a_status_that_cannot_be_read_counts_as_empty_and_is_told(file, capsys) -> None:
    path = file(own("a") + "status: {memory: {setbacks: 5}}\n")

    assert names(path) == ["a"]
    assert capsys.readouterr().err.startswith(f"trimtab: warning: {path}: status: cannot be read and counts as empty: ")


def test_a_missing_file_is_bad_input(tmp_path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.yaml: cannot be read: No such file or directory"):
        load_policies([str(tmp_path / "nowhere.yaml")])


def test_every_fault_of_a_policy_is_a_line(run, write, file) -> None:
    from tests.builders import node

    policy = file(own("a", mode="Dry", suspend="perhaps"))

    result = run("plan", "--cluster", write("c.json", node("n1")), "--policy", policy)

    assert result.exit_code == 2
    assert [line.split(": ")[:4] for line in result.stderr.splitlines()] == [
        ["trimtab", policy, "DeschedulerPolicy/a", "spec.mode"],
        ["trimtab", policy, "DeschedulerPolicy/a", "spec.suspend"],
    ]


def test_skipped_policies_are_reported_and_the_rest_is_used(file, capsys) -> None:
    path = file(own("bad", mode="Dry") + "---\n" + own("good"))

    (policy,) = load_policies([path], skip_invalid=True)

    assert policy.name == "good"
    assert capsys.readouterr().err.startswith(f"trimtab: skipped: {path}: DeschedulerPolicy/bad: spec.mode: ")


def test_nothing_left_after_skipping_is_still_an_error(file) -> None:
    with pytest.raises(InputError, match="no policy found"):
        load_policies([file(own("bad", mode="Dry"))], skip_invalid=True)
