"""The API server as trimtab sees it. Nothing in here knows what a policy is; all above reads the cluster through it.

``connection`` finds the server and talks to it, behind the seam ``api``; ``verbs``, ``eviction`` and ``lease`` are what
is asked of it. ``objects`` are the typed values, ``wire`` decodes them, ``watching`` keeps them current. ``rules`` are
Kubernetes' own, as pure functions; ``events`` is what is told to objects' owners.
"""
