"""The ``/metrics`` endpoint: process metrics, the rendered page, the server, and the authorization of clients."""
