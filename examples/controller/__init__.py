"""The worked example of docs/architecture.md."""
