"""``trimtab convert``: another descheduler's policy as DeschedulerPolicies."""

from __future__ import annotations

import click

from trimtab.cli.errors import reported
from trimtab.cli.options import STDIN, output_option, skip_invalid_option


@click.command()
@click.argument("files", metavar="FILE|-…", nargs=-1, required=True)
@skip_invalid_option
@output_option("yaml", "json")
def convert(*, files: tuple[str, ...], skip_invalid: bool, form: str) -> None:
    """Write another descheduler's policies as DeschedulerPolicies, for `kubectl apply` and `trimtab plan`.

    Taken are DeschedulerPolicy of descheduler/v1alpha1 and descheduler/v1alpha2, also in a ConfigMap, and OpenShift's
    KubeDescheduler, several documents a file and several files. A profile becomes a policy; where its strategies do
    not look at the same pods, several. All have mode: Simulate, unless a KubeDescheduler says Automatic.

    What has no equivalent is told on stderr, with what happens instead. Keys that are unknown or stand in the wrong
    place are errors, and so is what trimtab cannot do and must not leave out.
    """
    from trimtab.cli.output import emit_all
    from trimtab.cli.policies import read_policies

    if files.count(STDIN) > 1:
        raise click.UsageError("standard input (-) can be read once")
    with reported():
        found = read_policies(files, skip_invalid=skip_invalid)
        emit_all([document for imported in found for document in imported.documents], form)
