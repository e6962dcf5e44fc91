"""Events (events.k8s.io/v1): what is recorded on objects for their owners, as series, paced."""
