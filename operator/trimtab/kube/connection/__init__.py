"""The connection to the API server: configuration, credentials, and the shared HTTP transport."""
