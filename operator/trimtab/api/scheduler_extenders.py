"""Scheduler extenders: HTTP services that narrow down, score, bind or preempt for pods of a SchedulerPolicy.

    extenders:
    - urlPrefix: https://gpu-extender.kube-system.svc/scheduler
      filterVerb: filter
      prioritizeVerb: prioritize
      weight: 2
      nodeCacheCapable: true
      managedResources:
      - {name: example.com/gpu-memory, ignoredByScheduler: true}

The fields have the names and the meaning of ``Extender`` of kubescheduler.config.k8s.io/v1 (Kubernetes v1.36). The
scheme of urlPrefix replaces ``enableHTTPS``, and keys of client certificates are files, because everyone who may read a
SchedulerPolicy would see them.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from trimtab.api.base import ATOMIC, Rule, Spec, bounded, doc, list_map
from trimtab.api.scalars import GO_DURATION_RULE, GoDuration

MAX_EXTENDERS: Final = 8
MAX_MANAGED: Final = 16
LONGEST_TIMEOUT: Final = 60.0

ExtendedResourceName = Annotated[str, Meta(min_length=3, max_length=317, pattern="^[a-z0-9.-]+/[-A-Za-z0-9_.]+$")]
UrlPrefix = Annotated[
    str,
    Meta(
        min_length=8,
        max_length=512,
        pattern=r"^https?://([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?"
        r"(/[-A-Za-z0-9._~/]*)?$",
    ),
]
Verb = Annotated[str, Meta(max_length=128, pattern="^([A-Za-z0-9][-A-Za-z0-9._/]*)?$")]
TlsFile = Annotated[str, Meta(max_length=256, pattern="^(/etc/trimtab(/[A-Za-z0-9_][-A-Za-z0-9._]*)+)?$")]

WEIGHT_OF_PRIORITIES: Final = "must be at least 1 with prioritizeVerb"
TIMEOUT_RANGE: Final = "must be longer than 0 and at most 60s"
ONE_BINDER: Final = "at most one extender can have a bindVerb"
MANAGED_ONCE: Final = "each resource can be managed by one extender only"
TLS_OF_HTTPS: Final = "is only valid with an https:// urlPrefix"
KEY_OF_CERTIFICATE: Final = "certFile and keyFile must be given together"


class ManagedResource(Spec, frozen=True):
    """An extended resource that an extender manages."""

    name: Annotated[ExtendedResourceName, doc("Name of the extended resource, for example example.com/gpu-memory.")]
    ignored_by_scheduler: Annotated[
        bool, doc("Whether the NodeResourcesFit plugin ignores the resource because the extender checks it.")
    ] = False


class ExtenderTLS(Spec, frozen=True):
    """How to verify the extender, and which certificate to present. The files must be in the operator's container."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="(self.certFile == '') == (self.keyFile == '')", message=KEY_OF_CERTIFICATE),
    )

    insecure: Annotated[
        bool, doc("Whether to skip verification of the server's certificate. Intended for tests only.")
    ] = False
    server_name: Annotated[
        Annotated[str, Meta(max_length=253)],
        doc("Expected name in the server's certificate. Defaults to the host in urlPrefix."),
    ] = ""
    ca_data: Annotated[
        Annotated[str, Meta(max_length=65_536)],
        doc(
            "Base64-encoded PEM bundle of CA certificates for verifying the server's certificate, in addition to "
            "those in caFile. If both caData and caFile are unset, the system's trust store is used."
        ),
    ] = ""
    ca_file: Annotated[
        TlsFile,
        doc(
            "Path of a PEM file with CA certificates for verifying the server's certificate. The file must be under "
            "/etc/trimtab in the operator's container."
        ),
    ] = ""
    cert_file: Annotated[
        TlsFile,
        doc(
            "Path of a PEM file with the client certificate. The file must be under /etc/trimtab in the operator's "
            "container. Requires keyFile."
        ),
    ] = ""
    key_file: Annotated[
        TlsFile,
        doc(
            "Path of a PEM file with the private key of the client certificate. The file must be under /etc/trimtab "
            "in the operator's container. Requires certFile."
        ),
    ] = ""


class Extender(Spec, frozen=True):
    """A scheduler extender.

    If managedResources is empty, the extender is called for every pod that the policy schedules.
    """

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.prioritizeVerb == '' || self.weight >= 1",
            message=WEIGHT_OF_PRIORITIES,
            field_path=".weight",
        ),
        Rule(
            rule="!has(self.tlsConfig) || self.urlPrefix.startsWith('https://')",
            message=TLS_OF_HTTPS,
            field_path=".tlsConfig",
            reason="FieldValueForbidden",
        ),
    )

    url_prefix: Annotated[
        UrlPrefix,
        doc("Base URL of the extender. The URL of each request is this URL, followed by a slash and the verb."),
    ]
    filter_verb: Annotated[Verb, doc("Verb for filter requests. If empty, the extender does not filter nodes.")] = ""
    prioritize_verb: Annotated[
        Verb, doc("Verb for prioritize requests. If empty, the extender does not score nodes.")
    ] = ""
    weight: Annotated[
        int,
        Meta(
            ge=0,
            le=100_000,
            description="Factor by which the extender's scores are multiplied. Must be at least 1 if prioritizeVerb "
            "is set.",
        ),
    ] = 0
    bind_verb: Annotated[
        Verb,
        doc(
            "Verb for bind requests. If set, the extender binds the pods instead of trimtab. At most one extender can "
            "set it."
        ),
    ] = ""
    preempt_verb: Annotated[
        Verb,
        doc(
            "Verb for preempt requests. The extender can reject the node that was selected for a preemption, or "
            "exclude some of the victims on the node. If empty, the extender does not participate in preemption."
        ),
    ] = ""
    http_timeout: Annotated[
        GoDuration,
        doc(
            "Timeout of each request. If a filter request times out, the scheduling attempt fails unless ignorable is "
            "true. Duration such as 500ms, 5s or 1m, longer than 0 and at most 60s.",
            GO_DURATION_RULE,
            Rule(
                rule="!self.matches('^(0|([0-9]{1,9}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+)$') || "
                "(duration(self) > duration('0s') && duration(self) <= duration('60s'))",
                message=TIMEOUT_RANGE,
            ),
        ),
    ] = "5s"
    node_cache_capable: Annotated[
        bool,
        doc(
            "Whether the extender caches node information. If true, only node names are sent. Otherwise, the full "
            "Node objects of all feasible nodes are sent, which can be tens of megabytes per request in a large "
            "cluster."
        ),
    ] = False
    managed_resources: Annotated[
        tuple[ManagedResource, ...],
        bounded(
            "Extended resources that the extender manages. The extender is called only for pods that request at least "
            "one of these resources. If empty, the extender is called for every pod that the policy schedules.",
            limit=MAX_MANAGED,
            **list_map("name"),
        ),
    ] = ()
    ignorable: Annotated[
        bool,
        doc(
            "Whether pods are scheduled without the extender if the extender does not respond or returns an error. "
            "Regardless of this field, errors of prioritize requests are always ignored, and errors of bind requests "
            "are never ignored."
        ),
    ] = False
    tls_config: Annotated[
        ExtenderTLS | None,
        doc("TLS settings for requests to the extender. Only valid if urlPrefix starts with https://."),
    ] = None


Extenders = Annotated[
    tuple[Extender, ...],
    bounded(
        "Scheduler extenders, which are HTTP services that filter and score nodes, bind pods or approve "
        "preemptions. Filter and preempt requests are sent in the order of the list.",
        limit=MAX_EXTENDERS,
        **{
            **ATOMIC,
            "x-kubernetes-validations": [
                Rule(rule="self.filter(extender, extender.bindVerb != '').size() <= 1", message=ONE_BINDER).wire(),
                Rule(
                    rule="self.all(extender, !has(extender.managedResources) || extender.managedResources.all(managed, "
                    "self.filter(other, has(other.managedResources) && "
                    "other.managedResources.exists(each, each.name == managed.name)).size() == 1))",
                    message=MANAGED_ONCE,
                ).wire(),
            ],
        },
    ),
]
