"""The HTTP server of probes, metrics and webhooks, with limits on clients, and the TLS certificate of metrics."""
