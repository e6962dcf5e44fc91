"""Keeping a store equal to the API server: list, watch, and everything that can go wrong between the two."""
