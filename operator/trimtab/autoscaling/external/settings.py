"""Who may be asked beside the API server: settings of the process, for no object of the cluster should name them.

Whoever may write a ClusterAutoscaler is not whoever may read the operator's key.
"""

from __future__ import annotations

from msgspec import Struct


class GrpcEndpoint(Struct, frozen=True):
    """A gRPC server, and how its connection is secured.

    Attributes:
        address: ``host:port``, or anything else that gRPC resolves, e.g. ``unix:/run/provider.sock``.
        ca_file: the authorities that its certificate is from, PEM; the system's where only ``cert_file`` is given.
        cert_file: our certificate, PEM, where it asks for one.
        key_file: the certificate's key, PEM.

    Without files the connection is not encrypted: who can reach the server can remove nodes.
    """

    address: str
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    @property
    def encrypted(self) -> bool:
        """Whether the connection is by TLS."""
        return bool(self.ca_file or self.cert_file)


class ExternalSettings(Struct, frozen=True):
    """Providers outside of the cluster, none unless it is given.

    Attributes:
        cloud_provider: a provider of cluster-autoscaler's ``externalgrpc``.
        expander: a server for the expander Grpc.
        kwok_namespace: the namespace with kwok's ConfigMaps, where kwok's node templates are groups.
    """

    cloud_provider: GrpcEndpoint | None = None
    expander: GrpcEndpoint | None = None
    kwok_namespace: str = ""
