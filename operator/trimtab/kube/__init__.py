"""The API server as trimtab sees it: transport, informer, typed values, quantities, selectors, events, leases.

Nothing in here knows what a policy is; everything above reads the cluster only through these values.
"""
