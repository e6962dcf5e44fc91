"""The descheduler: pods that run where they should not, or not where they could better, are moved.

``strategies`` and ``planner`` are pure; ``cycle`` is one observe → plan → act of a policy, ``controller`` its loop,
``handlers`` Kopf's thin side, ``report`` and ``status`` what is told of it.
"""
