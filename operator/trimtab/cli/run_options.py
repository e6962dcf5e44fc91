"""Options of ``trimtab run``: ports, webhooks, external gRPC servers, kubelets, eviction and complexity limits."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from trimtab.api.scalars import parse_go_duration
from trimtab.kube.wire.limits import DEFAULT_LIMITS, ComplexityLimits

if TYPE_CHECKING:
    from trimtab.autoscaling.external import ExternalSettings, GrpcEndpoint
    from trimtab.disruption.limits import EvictionLimits
    from trimtab.pressure.kubelet_client import Access
    from trimtab.runtime.admission import AdmissionSettings
    from trimtab.runtime.http.server import Limits
    from trimtab.runtime.metrics.server import MetricsSettings


def address(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``. The host may be empty or an IPv6 address in brackets.

    Raises:
        click.BadParameter: the value is not ``HOST:PORT``.
    """
    host, _, port = value.rpartition(":")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise click.BadParameter(f"{value!r} is not HOST:PORT, e.g. 127.0.0.1:8080, [::1]:8080 or :8080")
    return host.removeprefix("[").removesuffix("]"), int(port)


def duration(_context: click.Context, _option: click.Parameter, text: str) -> float:
    """Parse a Go duration to seconds.

    Raises:
        click.BadParameter: the value is not a duration.
    """
    try:
        return parse_go_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _optional_address(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, int] | None:
    return None if not value else address(context, parameter, value)


def positive_duration(context: click.Context, option: click.Parameter, text: str) -> float:
    """Parse a positive Go duration to seconds.

    Raises:
        click.BadParameter: the value is not a positive duration.
    """
    seconds = duration(context, option, text)
    if seconds <= 0:
        raise click.BadParameter("must be positive")
    return seconds


def _https_url(_context: click.Context, _option: click.Parameter, url: str) -> str:
    parts = urlsplit(url)
    if url and (parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment):
        raise click.BadParameter(f"{url!r} is not the base of an https URL, e.g. https://webhooks.example.com:9443")
    return url


_SERVING_OPTIONS = (
    click.option(
        "--metrics-listen",
        metavar="HOST:PORT",
        default=None,
        callback=_optional_address,
        help="Serve /metrics at this address, from a separate thread. Default: at the address of --listen.",
    ),
    click.option(
        "--metrics-secure/--no-metrics-secure",
        default=False,
        show_default=True,
        help="Serve /metrics over TLS, to clients whose bearer token the API server authenticates (TokenReview) and "
        "whose user may get the non-resource URL /metrics (SubjectAccessReview). Needs --metrics-listen.",
    ),
    click.option(
        "--metrics-tls-cert-file",
        metavar="FILE",
        default="",
        help="TLS certificate (PEM) for /metrics; reread when it changes. Default with --metrics-secure: a self-signed "
        "certificate.",
    ),
    click.option(
        "--metrics-tls-key-file", metavar="FILE", default="", help="Private key (PEM) of --metrics-tls-cert-file."
    ),
    click.option(
        "--http-max-connections",
        type=click.IntRange(min=1),
        default=64,
        show_default=True,
        help="Maximum number of open connections to each of the probe and metrics ports.",
    ),
    click.option(
        "--http-max-connections-per-client",
        type=click.IntRange(min=1),
        default=16,
        show_default=True,
        help="Maximum number of open connections of one client address to each of these ports.",
    ),
    click.option(
        "--http-max-requests-per-second",
        type=click.FloatRange(min=0, min_open=True),
        default=10.0,
        show_default=True,
        help="Maximum request rate of one client address to each of these ports; all clients together may send five "
        "times as many.",
    ),
    click.option(
        "--http-timeout",
        default="10s",
        show_default=True,
        callback=positive_duration,
        help="Time that a client has for a TLS handshake, for sending a complete request, and for reading a response.",
    ),
)


def serving_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the HTTP ports, and pass them to the command as two parameters.

    The command gets ``http_limits`` (:class:`~trimtab.runtime.http.server.Limits`) and ``metrics``
    (:class:`~trimtab.runtime.metrics.server.MetricsSettings`, or ``None`` without ``--metrics-listen``).
    """

    @wraps(command)
    def with_settings(
        *,
        metrics_listen: tuple[str, int] | None,
        metrics_secure: bool,
        metrics_tls_cert_file: str,
        metrics_tls_key_file: str,
        http_max_connections: int,
        http_max_connections_per_client: int,
        http_max_requests_per_second: float,
        http_timeout: float,
        **values: Any,
    ) -> Any:
        if bool(metrics_tls_cert_file) != bool(metrics_tls_key_file):
            raise click.UsageError("--metrics-tls-cert-file and --metrics-tls-key-file must be given together")
        from trimtab.runtime.http.server import Limits

        limits = Limits(
            connections=http_max_connections,
            connections_per_client=http_max_connections_per_client,
            requests_per_second=http_max_requests_per_second,
            requests_per_second_in_all=5 * http_max_requests_per_second,
            timeout=http_timeout,
        )
        files = metrics_tls_cert_file, metrics_tls_key_file
        metrics = _metrics(metrics_listen, metrics_secure, files, limits)
        return command(http_limits=limits, metrics=metrics, **values)

    decorated: Callable[..., Any] = with_settings
    for option in reversed(_SERVING_OPTIONS):
        decorated = option(decorated)
    return decorated


def _metrics(
    listen: tuple[str, int] | None, secure: bool, files: tuple[str, str], limits: Limits
) -> MetricsSettings | None:
    if listen is None:
        if secure or any(files):
            raise click.UsageError(
                "--metrics-secure and --metrics-tls-cert-file need --metrics-listen: kubelets send no token to --listen"
            )
        return None
    from trimtab.runtime.metrics.server import MetricsSettings

    host, port = listen
    cert_file, key_file = files
    return MetricsSettings(host=host, port=port, secure=secure, cert_file=cert_file, key_file=key_file, limits=limits)


_INSPECTION_OPTIONS: Final = (
    click.option(
        "--inspection-api-listen",
        metavar="HOST:PORT",
        default=None,
        callback=_optional_address,
        help="Serve the inspection API at this address, from a separate thread, and register it as an APIService. "
        "Default: it is not served.",
    ),
    click.option(
        "--inspection-api-service",
        metavar="NAME",
        default="trimtab-inspection",
        show_default=True,
        help="Service in the operator's namespace through which the API server calls the inspection API.",
    ),
    click.option(
        "--inspection-api-service-port",
        type=click.IntRange(min=1, max=65535),
        default=443,
        show_default=True,
        help="Port of --inspection-api-service.",
    ),
    click.option(
        "--inspection-api-secret",
        metavar="NAME",
        default="trimtab-inspection-certificate",
        show_default=True,
        help="Existing Secret in the operator's namespace in which the operator stores the certificate of the "
        "inspection API.",
    ),
    click.option(
        "--inspection-api-owner",
        metavar="NAME",
        default="",
        help="ClusterRole that owns the APIService, so that deleting it deletes the APIService. Default: no owner.",
    ),
)


def inspection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the inspection API, and pass them to the command as one parameter.

    The command gets ``inspection``: :class:`~trimtab.runtime.inspection.service.InspectionSettings`, or ``None``
    without ``--inspection-api-listen``.
    """

    @wraps(command)
    def with_settings(
        *,
        inspection_api_listen: tuple[str, int] | None,
        inspection_api_service: str,
        inspection_api_service_port: int,
        inspection_api_secret: str,
        inspection_api_owner: str,
        **values: Any,
    ) -> Any:
        if inspection_api_listen is None:
            return command(inspection=None, **values)
        from trimtab.runtime.inspection.service import InspectionSettings

        host, port = inspection_api_listen
        settings = InspectionSettings(
            host=host,
            port=port,
            service=inspection_api_service,
            service_port=inspection_api_service_port,
            secret=inspection_api_secret,
            owner=inspection_api_owner,
        )
        return command(inspection=settings, **values)

    decorated: Callable[..., Any] = with_settings
    for option in reversed(_INSPECTION_OPTIONS):
        decorated = option(decorated)
    return decorated


_WEBHOOK_OPTIONS: Final = (
    click.option(
        "--webhook-listen",
        metavar="HOST:PORT",
        default=":9443",
        show_default=True,
        callback=address,
        help="Role admission: serve the webhooks at this address.",
    ),
    click.option(
        "--webhook-service",
        metavar="NAME",
        default="trimtab-admission",
        show_default=True,
        help="Role admission: Service in the operator's namespace through which the API server calls the webhooks.",
    ),
    click.option(
        "--webhook-url",
        metavar="URL",
        default="",
        callback=_https_url,
        help="Role admission: base URL (https) at which the API server calls the webhooks, instead of a Service. For "
        "webhooks outside the cluster.",
    ),
    click.option(
        "--webhook-configuration",
        metavar="NAME",
        default="trimtab-admission",
        show_default=True,
        help="Role admission: name of the MutatingWebhookConfiguration and of the ValidatingWebhookConfiguration.",
    ),
    click.option(
        "--webhook-secret",
        metavar="NAME",
        default="trimtab-admission-certificate",
        show_default=True,
        help="Role admission: Secret in the operator's namespace with tls.crt, tls.key and ca.crt.",
    ),
    click.option(
        "--webhook-issue-certificates/--no-webhook-issue-certificates",
        default=True,
        show_default=True,
        help="Role admission: issue and rotate the certificate in --webhook-secret. Otherwise it is only read, for "
        "example if cert-manager issues it.",
    ),
    click.option(
        "--webhook-certificate-lifetime",
        metavar="DURATION",
        default="2160h",
        show_default=True,
        callback=positive_duration,
        help="Role admission: lifetime of issued certificates. They are renewed after two thirds of it; the CA is "
        "replaced after twice the lifetime.",
    ),
    click.option(
        "--webhook-shutdown-delay",
        metavar="DURATION",
        default="10s",
        show_default=True,
        callback=duration,
        help="Role admission: time after SIGTERM for which the webhooks respond, until the API server calls other "
        "replicas only; must be shorter than --shutdown-timeout.",
    ),
)


def webhook_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--role`` and the options of the role ``admission``, and pass them to the command as one parameter.

    The command gets ``admission``: :class:`~trimtab.runtime.admission.AdmissionSettings`, or ``None`` for the role
    ``controllers``.
    """

    @wraps(command)
    def with_settings(*, role: str, **values: Any) -> Any:
        given = {name: values.pop(name) for name in [key for key in values if key.startswith("webhook_")]}
        return command(admission=_admission_settings(given) if role == "admission" else None, **values)

    decorated: Callable[..., Any] = with_settings
    for option in reversed(_WEBHOOK_OPTIONS):
        decorated = option(decorated)
    return click.option(
        "--role",
        type=click.Choice(["controllers", "admission"]),
        default="controllers",
        show_default=True,
        help="Role of the process: controllers, or the webhooks of the PlacementAdmission.",
    )(decorated)


def _admission_settings(given: dict[str, Any]) -> AdmissionSettings:
    from trimtab.runtime.admission import AdmissionSettings

    host, port = given["webhook_listen"]
    return AdmissionSettings(
        host=host,
        port=port,
        url=given["webhook_url"],
        service=given["webhook_service"],
        configuration=given["webhook_configuration"],
        secret=given["webhook_secret"],
        issue_certificates=given["webhook_issue_certificates"],
        certificate_lifetime=given["webhook_certificate_lifetime"],
        shutdown_delay=given["webhook_shutdown_delay"],
    )


_PROVIDER: Final = "cloud-provider-grpc"
_EXPANDER: Final = "expander-grpc"
_FILES: Final = ("ca-file", "cert-file", "key-file")


def external_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for external gRPC servers and for kwok, and pass them to the command as one parameter.

    The command gets ``external``: :class:`~trimtab.autoscaling.external.ExternalSettings`, or ``None`` if none of the
    options is given.
    """

    @wraps(command)
    def with_settings(**values: Any) -> Any:
        ours = {name: values.pop(name) for name in [key for key in values if key in _EXTERNAL_NAMES]}
        return command(external=_external_settings(ours), **values)

    for decorate in reversed(_EXTERNAL_OPTIONS):
        with_settings = decorate(with_settings)
    return with_settings


def _external_option(name: str, metavar: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(f"--{name}", metavar=metavar, default="", help=text)


_EXTERNAL_OPTIONS: Final = (
    _external_option(
        f"{_PROVIDER}-address",
        "HOST:PORT",
        "A cloud provider server for cluster-autoscaler's externalgrpc protocol. Its node groups are scaled in "
        "addition to MachineSets and the like.",
    ),
    _external_option(
        f"{_PROVIDER}-ca-file",
        "FILE",
        "CA certificates (PEM) to verify the cloud provider server with; reread on change.",
    ),
    _external_option(f"{_PROVIDER}-cert-file", "FILE", "Client certificate (PEM) for the cloud provider server."),
    _external_option(
        f"{_PROVIDER}-key-file",
        "FILE",
        "Private key (PEM) of the client certificate. Without these files the connection is not encrypted.",
    ),
    _external_option(
        f"{_EXPANDER}-address", "HOST:PORT", "Expander server for cluster-autoscaler's gRPC expander protocol."
    ),
    _external_option(f"{_EXPANDER}-ca-file", "FILE", "CA certificates (PEM) to verify the expander server with."),
    _external_option(f"{_EXPANDER}-cert-file", "FILE", "Client certificate (PEM) for the expander server."),
    _external_option(f"{_EXPANDER}-key-file", "FILE", "Private key (PEM) of the client certificate."),
    _external_option(
        "kwok-templates-namespace",
        "NAMESPACE",
        "Try out autoscaling with simulated nodes: create node groups from the ConfigMaps kwok-provider-config and "
        "kwok-provider-templates in this namespace.",
    ),
)

_EXTERNAL_NAMES: Final = frozenset(
    name.replace("-", "_")
    for name in (
        *(f"{prefix}-{each}" for prefix in (_PROVIDER, _EXPANDER) for each in ("address", *_FILES)),
        "kwok-templates-namespace",
    )
)


def _external_settings(values: dict[str, str]) -> ExternalSettings | None:
    provider, expander = _endpoint(_PROVIDER, values), _endpoint(_EXPANDER, values)
    namespace = values["kwok_templates_namespace"]
    if provider is None and expander is None and not namespace:
        return None
    from trimtab.autoscaling.external import ExternalSettings

    return ExternalSettings(cloud_provider=provider, expander=expander, kwok_namespace=namespace)


def _endpoint(prefix: str, values: dict[str, str]) -> GrpcEndpoint | None:
    """Return the gRPC endpoint from the options with this prefix, or ``None`` if no address is given.

    Raises:
        click.UsageError: files are set without an address, or a certificate is set without its key.
    """
    address, *files = (values[f"{prefix}-{each}".replace("-", "_")] for each in ("address", *_FILES))
    if not address:
        if any(files):
            given = ", ".join(f"--{prefix}-{name}" for name, file in zip(_FILES, files, strict=True) if file)
            raise click.UsageError(f"{given} needs --{prefix}-address")
        return None
    if bool(files[1]) != bool(files[2]):
        raise click.UsageError(f"--{prefix}-cert-file and --{prefix}-key-file must be given together")
    from trimtab.autoscaling.external import GrpcEndpoint

    return GrpcEndpoint(address, *files)


_KUBELET_OPTIONS: Final = (
    click.option(
        "--kubelet-access",
        type=click.Choice(["Direct", "Proxy"]),
        default="Direct",
        show_default=True,
        help="How the node-pressure controller reads the stats of kubelets. Direct: at the nodes' addresses, with "
        "tokens of --kubelet-stats-service-account. Proxy: through the API server, which needs the permission "
        "nodes/proxy. Warning: this permission also allows commands to be run in every container.",
    ),
    click.option(
        "--kubelet-ca-file",
        metavar="FILE",
        default="",
        help="CA certificates (PEM) to verify kubelets with; reread when it changes. Default: those of the API server.",
    ),
    click.option(
        "--kubelet-insecure-skip-tls-verify/--no-kubelet-insecure-skip-tls-verify",
        default=False,
        show_default=True,
        help="Do not verify the certificates of kubelets, for clusters in which kubelets sign their own. Any server at "
        "the address of a node can then report false stats, and receives a token that may read stats.",
    ),
    click.option(
        "--kubelet-stats-service-account",
        metavar="NAME",
        default="trimtab-kubelet-stats",
        show_default=True,
        help="ServiceAccount in the operator's namespace whose short-lived tokens are sent to kubelets. It needs only "
        "the permission to get nodes/stats.",
    ),
)


def kubelet_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for reading kubelets, and pass them to the command as one parameter.

    The command gets ``kubelets``: :class:`~trimtab.pressure.kubelet_client.KubeletClientSettings`.
    """

    @wraps(command)
    def with_settings(
        *,
        kubelet_access: Access,
        kubelet_ca_file: str,
        kubelet_insecure_skip_tls_verify: bool,
        kubelet_stats_service_account: str,
        **values: Any,
    ) -> Any:
        if kubelet_ca_file and kubelet_insecure_skip_tls_verify:
            raise click.UsageError("--kubelet-ca-file and --kubelet-insecure-skip-tls-verify exclude each other")
        if kubelet_access == "Proxy" and (kubelet_ca_file or kubelet_insecure_skip_tls_verify):
            raise click.UsageError(
                "--kubelet-ca-file and --kubelet-insecure-skip-tls-verify need --kubelet-access Direct: otherwise, the "
                "API server verifies kubelets"
            )
        from trimtab.pressure.kubelet_client import KubeletClientSettings

        settings = KubeletClientSettings(
            access=kubelet_access,
            ca_file=kubelet_ca_file,
            insecure_skip_tls_verify=kubelet_insecure_skip_tls_verify,
            service_account=kubelet_stats_service_account,
        )
        return command(kubelets=settings, **values)

    decorated: Callable[..., Any] = with_settings
    for option in reversed(_KUBELET_OPTIONS):
        decorated = option(decorated)
    return decorated


_LIMITS: Final = {
    "max_concurrent": (
        "max-concurrent-evictions",
        "Maximum number of evictions in progress at the same time, over all controllers; 0 for no limit.",
    ),
    "max_concurrent_per_namespace": (
        "max-concurrent-evictions-per-namespace",
        "Maximum number of evictions in progress at the same time in one namespace; 0 for no limit.",
    ),
    "max_concurrent_per_node": (
        "max-concurrent-evictions-per-node",
        "Maximum number of evictions in progress at the same time on one node; 0 for no limit.",
    ),
    "max_concurrent_per_owner": (
        "max-concurrent-evictions-per-owner",
        "Maximum number of evictions in progress at the same time of pods with the same controller; 0 for no limit.",
    ),
    "per_minute": (
        "evictions-per-minute",
        (
            "Maximum number of evictions per minute, over all controllers; 0 for no limit. Deletions by the taint "
            "manager count but are not delayed."
        ),
    ),
    "per_minute_per_namespace": (
        "evictions-per-minute-per-namespace",
        "Maximum number of evictions per minute in one namespace; 0 for no limit.",
    ),
    "per_minute_per_node": (
        "evictions-per-minute-per-node",
        "Maximum number of evictions per minute on one node; 0 for no limit.",
    ),
    "per_minute_per_owner": (
        "evictions-per-minute-per-owner",
        "Maximum number of evictions per minute of pods with the same controller; 0 for no limit.",
    ),
}


def eviction_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the eviction limits, and pass them to the command as one parameter.

    The command gets ``eviction_limits``: :class:`~trimtab.disruption.limits.EvictionLimits`, or ``None`` if none of
    the options is given.
    """

    @wraps(command)
    def with_limits(**values: Any) -> Any:
        given = {name: values.pop(f"limit_{name}") or None for name in _LIMITS}
        return command(eviction_limits=_limits(given), **values)

    for name, (option, text) in reversed(_LIMITS.items()):
        decorate = click.option(
            f"--{option}", f"limit_{name}", type=click.IntRange(min=0), default=0, show_default=True, help=text
        )
        with_limits = decorate(with_limits)
    return with_limits


_COMPLEXITY: Final = {
    "resource_names": ("max-pod-resource-names", "Maximum number of resource names in a pod's requests and limits"),
    "affinity_terms": (
        "max-pod-affinity-terms",
        "Maximum number of pod affinity terms, node affinity terms and topology spread constraints of a pod",
    ),
    "selector_values": (
        "max-pod-selector-values",
        "Maximum number of labels, expressions, values and namespaces in a pod's selectors",
    ),
    "topology_keys": ("max-pod-topology-keys", "Maximum number of distinct topology keys of a pod"),
    "tolerations": ("max-pod-tolerations", "Maximum number of tolerations of a pod"),
    "items": (
        "max-pod-items",
        "Maximum number of containers, of host ports, of volumes, of claims, of gates and of owner references of a pod",
    ),
    "labels": ("max-pod-labels", "Maximum number of labels of a pod"),
    "annotation_bytes": ("max-pod-annotation-bytes", "Maximum size of the pod annotations that trimtab reads"),
    "spec_bytes": ("max-pod-spec-bytes", "Maximum encoded size of the pod spec fields that trimtab reads"),
    "namespace_terms": (
        "max-namespace-affinity-terms",
        "Maximum number of pod affinity terms and topology spread constraints in all distinct pod specs of a namespace",
    ),
    "namespace_selector_values": (
        "max-namespace-selector-values",
        "Maximum number of labels, expressions, values and namespaces in selectors of distinct specs of a namespace",
    ),
    "namespace_annotation_bytes": (
        "max-namespace-annotation-bytes",
        "Maximum size of the distinct pod annotations of a namespace that trimtab reads",
    ),
    "namespace_spec_bytes": (
        "max-namespace-spec-bytes",
        "Maximum encoded size of all distinct pod specs of a namespace that are 4 KiB or larger",
    ),
}


def complexity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for complexity limits, and pass them to the command as one parameter.

    The command gets ``complexity``: :class:`~trimtab.kube.wire.limits.ComplexityLimits`.
    """

    @wraps(command)
    def with_limits(**values: Any) -> Any:
        given = {name: values.pop(f"complexity_{name}") for name in _COMPLEXITY}
        return command(complexity=ComplexityLimits(**given), **values)

    for name, (option, text) in reversed(_COMPLEXITY.items()):
        decorate = click.option(
            f"--{option}",
            f"complexity_{name}",
            type=click.IntRange(min=1),
            default=getattr(DEFAULT_LIMITS, name),
            show_default=True,
            help=f"{text}; trimtab neither moves nor places pods above the limit (PodTooComplex)."
            if not name.startswith("namespace_")
            else f"{text}; above it, trimtab neither moves nor places pods that have some (NamespaceTooComplex).",
        )
        with_limits = decorate(with_limits)
    return with_limits


def _limits(given: dict[str, int | None]) -> EvictionLimits | None:
    if not any(given.values()):
        return None
    from trimtab.disruption.limits import EvictionLimits

    return EvictionLimits(**given)
