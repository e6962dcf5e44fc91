"""Informers, which keep stores in sync with the API server by listing and watching, and detection of hung watches."""
