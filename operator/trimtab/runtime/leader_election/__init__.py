"""Leader election by a Lease, and detection of a second operator on the same cluster."""
