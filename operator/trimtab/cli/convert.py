"""``trimtab convert``: converts policies of other deschedulers, schedulers and API servers to policies of trimtab."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from trimtab.cli.errors import report_errors
from trimtab.cli.options import STDIN, operator_namespace_option, output_option, skip_invalid_option
from trimtab.kube.printable import printable

if TYPE_CHECKING:
    from trimtab.cli.policies import PlacementAdmissions


ADMISSION_POLICY: Final = "admission-policy"


@click.command()
@click.argument("files", metavar="FILE|-…", nargs=-1, required=True)
@click.option(
    "--to",
    "target",
    type=click.Choice([ADMISSION_POLICY]),
    help="Convert a PlacementAdmission to admission policies of Kubernetes, which need no webhook. Default: convert "
    "policies of other programs to policies of trimtab.",
)
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True),
    help="Also write the differences in behaviour to a file, with their severity, in the format of -o.",
)
@operator_namespace_option
@skip_invalid_option
@output_option("yaml", "json")
def convert(
    *,
    files: tuple[str, ...],
    target: str | None,
    report: str | None,
    operator_namespace: str,
    skip_invalid: bool,
    form: str,
) -> None:
    """Convert policies of other programs to policies of trimtab, for `kubectl apply` and `trimtab plan`.

    Descheduler policies: the command reads DeschedulerPolicy of descheduler/v1alpha1 and descheduler/v1alpha2, also in
    a ConfigMap, and OpenShift's KubeDescheduler. A file may contain several documents. Each profile becomes one
    DeschedulerPolicy, or several if its strategies select different pods. The result has mode: Simulate, except for a
    KubeDescheduler with mode Automatic.

    The descheduler's Helm chart: the command reads the chart's values, also in a Flux HelmRelease, an Argo CD
    Application or ApplicationSet, a Kustomization with helmCharts, a Helmfile, a HelmChart of K3s, a Release of
    Crossplane or a fleet.yaml. It merges them with the defaults of the chart's version. The schedule or interval, and
    the flags in cmdOptions, become part of the policies. So do those of a CronJob, Deployment or Job that is given
    together with the ConfigMap, for example in the output of kustomize build or helm template. Other objects are
    skipped and counted.

    Scheduler configurations: the command reads the legacy Policy (scheduler.json of OpenShift 3.11) and
    KubeSchedulerConfiguration, also in a ConfigMap. Each scheduler name becomes one SchedulerPolicy.

    Admission configurations: the command reads admissionConfig and projectConfig of OpenShift 3.11's
    master-config.yaml and kube-apiserver's AdmissionConfiguration, with the files to which they refer. Together they
    become one PlacementAdmission with mode: Warn.

    Kubelet configurations: the command reads KubeletConfiguration, OpenShift's KubeletConfig, and the flags in
    kubeletArguments of OpenShift 3.11's node-config.yaml, kubeletExtraArgs of kubeadm and kubelet-arg of K3s. Each
    document becomes one NodePressurePolicy with mode: Simulate. Its thresholds are the kubelet's, at which the
    kubelet kills pods, so raise them.

    cluster-autoscaler: the command reads the Deployment that runs it, and the values of its Helm chart, also in a
    HelmRelease or an Argo CD Application. The flags become one ClusterAutoscaler with mode: Simulate. Each --nodes
    flag, and each node group in the input with size annotations, becomes a MachineAutoscaler.

    With --to admission-policy, the command reads one PlacementAdmission, or an admission configuration of the kinds
    above, and prints a ValidatingAdmissionPolicy and a MutatingAdmissionPolicy with their bindings for each rule that
    Kubernetes 1.36 can apply without a webhook. Remove these rules from the PlacementAdmission afterwards. Rules that
    are not converted, and differences, are reported on stderr. The namespaces kube-system and --operator-namespace are
    exempt.

    Settings without an equivalent are reported on stderr, with their effect. Unknown and misplaced keys are errors,
    except where the descheduler drops them without a message: there they are warnings. Settings that trimtab does not
    support are errors if it is not safe to ignore them.
    """
    from trimtab.cli.autoscalers import AutoscalerDocuments
    from trimtab.cli.conversion_report import ConversionReport, recording
    from trimtab.cli.output import emit_all, encode
    from trimtab.cli.policies import NodePressurePolicies, PlacementAdmissions, SchedulerPolicies, read_policies

    if files.count(STDIN) > 1:
        raise click.UsageError("standard input (-) can be given only once")
    found_differences = ConversionReport()
    with report_errors(), recording(found_differences):
        schedulers, admission, pressure = SchedulerPolicies(), PlacementAdmissions(), NodePressurePolicies()
        if target == ADMISSION_POLICY:
            read_policies(files, skip_invalid=skip_invalid, readers=(admission,))
            emit_all(_admission_policies(admission, operator_namespace), form)
            return
        autoscalers = AutoscalerDocuments()
        readers = (schedulers, admission, pressure, autoscalers)
        found = read_policies(files, skip_invalid=skip_invalid, readers=readers, converting=True)
        documents = [document for imported in found for document in imported.documents]
        documents += [document for reader in readers for document in reader.documents]
        if report is not None:
            Path(report).write_bytes(encode(found_differences.document(documents), form))
        emit_all(documents, form)


def _admission_policies(admissions: PlacementAdmissions, operator_namespace: str) -> tuple[dict[str, Any], ...]:
    """Return the admission policies that a PlacementAdmission is converted to, and print the warnings.

    Raises:
        InputError: there is no PlacementAdmission, or none of its rules can be converted.
    """
    from trimtab.admission.admission_policies import to_admission_policies
    from trimtab.kube.errors import InputError

    admission = admissions.object
    if admission is None:
        raise InputError(f"no PlacementAdmission found; --to {ADMISSION_POLICY} converts nothing else")
    found = to_admission_policies(admission, exempt=(operator_namespace,))
    name = f"{admission.kind}/{admission.name}"
    for warning in found.warnings:
        click.echo(f"trimtab: warning: {printable(name)}: {printable(str(warning))}", err=True)
    if not found.documents:
        raise InputError("has no rule that can be converted to an admission policy", object=name)
    return found.documents
