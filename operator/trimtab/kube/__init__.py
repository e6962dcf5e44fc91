"""The Kubernetes client: requests, watches, decoded objects and Kubernetes' own rules, independent of any policy.

``api`` is the interface to the API server, and ``connection`` implements it. ``verbs`` sends requests. ``objects``
defines the types of objects, ``wire`` decodes objects into them, and ``watching`` keeps them in sync. ``rules``
contains Kubernetes' rules as pure functions, and ``events`` records events.
"""
