"""Policies from files."""

from __future__ import annotations

import pytest

from tests.fixtures.golden import Golden
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


def names(*sources: str) -> list[str]:
    return [policy.name for policy in load_policies(sources)]


def test_a_file_may_hold_several_documents_and_lists(file) -> None:
    listed = "apiVersion: v1\nkind: List\nitems:\n- " + own("c").replace("\n", "\n  ").rstrip()

    assert names(file(own("b") + "---\n" + own("a") + "---\n" + listed)) == ["a", "b", "c"]


def test_output_is_independent_of_file_order(file) -> None:
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


def test_profiles_become_policies_with_warnings(file, capsys, golden: Golden) -> None:
    path = file(PROFILES)

    assert names(path) == ["a", "b"]
    golden(capsys.readouterr().err.replace(path, "policy.yaml"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: 'kind: Other', b: 'x: [', c: ''}",
            "ConfigMap/x: contains no policy: no key of data has a DeschedulerPolicy",
            id="a ConfigMap of something else",
        ),
        pytest.param(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {b: 'kind: DeschedulerPolicy'}",
            " (data[b]): DeschedulerPolicy without apiVersion is not a policy",
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
            "Secret of v1 is not a policy; supported are DeschedulerPolicy of trimtab.dev/v1alpha1, DeschedulerPolicy "
            "of descheduler/v1alpha1, DeschedulerPolicy of descheduler/v1alpha2, KubeDescheduler of "
            "operator.openshift.io/v1 and ConfigMap of v1",
            id="other kind",
        ),
        pytest.param(
            "apiVersion: descheduler/v1alpha3\nkind: DeschedulerPolicy",
            "DeschedulerPolicy of descheduler/v1alpha3 is not a policy",
            id="other version",
        ),
        pytest.param(
            "kind: DeschedulerPolicy", "DeschedulerPolicy without apiVersion is not a policy", id="no version"
        ),
        pytest.param("{}", "an object without apiVersion and kind is not a policy", id="empty object"),
        pytest.param("", "no policy found", id="empty file"),
        pytest.param("- a", "does not hold a Kubernetes object", id="a list"),
        pytest.param("a: [", "is not YAML", id="broken YAML"),
        pytest.param(own("a", mode="Dry"), "DeschedulerPolicy/a: spec.mode:", id="wrong value"),
        pytest.param(own("a") + "---\n" + own("a"), "DeschedulerPolicy/a: is defined twice: in", id="same name"),
    ],
)
def test_invalid_policy_is_rejected_with_its_position(file, text, expected) -> None:
    path = file(text)

    with pytest.raises(InputError) as caught:
        load_policies([path])

    assert str(caught.value).startswith(path)
    assert expected in str(caught.value)


def test_invalid_status_is_ignored_with_a_warning(file, capsys, golden: Golden) -> None:
    path = file(own("a") + "status: {memory: {setbacks: 5}}\n")

    assert names(path) == ["a"]
    golden(capsys.readouterr().err.replace(path, "policy.yaml"))


def test_missing_file_is_an_input_error(tmp_path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.yaml: cannot be read: No such file or directory"):
        load_policies([str(tmp_path / "nowhere.yaml")])


def test_each_error_of_a_policy_is_a_line(run, write, file) -> None:
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


def test_no_policy_after_skipping_is_an_error(file) -> None:
    with pytest.raises(InputError, match="no policy found"):
        load_policies([file(own("bad", mode="Dry"))], skip_invalid=True)


class DeploymentReader:
    """A reader that supports a kind, but takes no object of it, as it is not the program in question."""

    kinds = (("Deployment", "apps/v1"),)

    def __bool__(self) -> bool:
        return False

    def take(self, manifest: object, *, source: str, place: str) -> bool:
        return False


@pytest.mark.parametrize(("version", "skipped"), [("apps/v1", True), ("apps/v2", False)])
def test_object_that_no_reader_takes_is_skipped_unless_its_version_is_unknown(
    file, capsys, version, skipped, golden: Golden
) -> None:
    path = file(own("one") + f"---\n{{apiVersion: {version}, kind: Deployment, metadata: {{name: web}}}}\n")
    if not skipped:
        with pytest.raises(InputError):
            load_policies([path], readers=(DeploymentReader(),))
        return
    assert [policy.name for policy in load_policies([path], readers=(DeploymentReader(),))] == ["one"]
    golden(capsys.readouterr().err)
