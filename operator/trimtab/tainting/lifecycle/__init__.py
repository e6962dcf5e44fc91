"""The node lifecycle. It detects failed nodes, sets their conditions to Unknown, and adds and removes taints.

In TaintAndEvict mode it replaces kube-controller-manager's node-lifecycle-controller. :mod:`.controller` runs the loop.
:mod:`.planner` plans an iteration with the help of :mod:`.node_health` and :mod:`.zones`. :mod:`.node_updates` and
:mod:`.pod_readiness` send the requests, and :mod:`.record` persists the state in a ConfigMap.
"""

from trimtab.tainting.lifecycle.controller import NodeLifecycleController

__all__ = ["NodeLifecycleController"]
