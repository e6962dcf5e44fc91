"""Users that rules treat specially: kube-controller-manager, which acts for the authors of pod templates, and kubelets.

A rule that depends on the user checks a pod template when its author writes it. kube-controller-manager then creates
pods from the template with its own users, so the rule must not check the permissions of these users instead. Anyone who
can act as a user in this list bypasses such rules, so the list is short and literal.

Owner references are no substitute: a tenant can write into a pod that a ReplicaSet or a DaemonSet owns it.
"""

from __future__ import annotations

from typing import Final

from trimtab.admission.requests import UserInfo

KUBE_CONTROLLER_MANAGER: Final = "system:kube-controller-manager"
"""All controllers, if kube-controller-manager runs without ``--use-service-account-credentials``."""

WORKLOAD_CONTROLLERS: Final = frozenset(
    {
        KUBE_CONTROLLER_MANAGER,
        *(
            f"system:serviceaccount:kube-system:{name}"
            for name in (
                "cronjob-controller",
                "daemon-set-controller",
                "deployment-controller",
                "job-controller",
                "replicaset-controller",
                "replication-controller",
                "statefulset-controller",
            )
        ),
    }
)
"""The users as whom kube-controller-manager creates pods, ReplicaSets and Jobs from pod templates.

The service accounts are named one by one (bootstrap policy of k8s.io/kubernetes v1.36, ``controller_policy.go``)
instead of by the pattern ``kube-system:*-controller``: add-ons in kube-system have such names too, among them
controllers that create whatever tenants describe in custom resources or in a Git repository. Service accounts with the
same names in other namespaces belong to tenants. A user who can act as a service account of kube-system controls the
cluster anyway.

Controllers of custom workloads (Argo Rollouts, OpenShift's DeploymentConfig) are not trusted, because the rules do not
check the templates in all of their resources. Rules check the pods of such controllers by their namespace, and by the
groups of the controller's service account.

The controllers of StatefulSets and DaemonSets also create pods from ControllerRevisions, which no rule checks. With the
roles admin, edit and view of Kubernetes, tenants may only read ControllerRevisions.
"""

NODES: Final = "system:nodes"
NODE_PREFIX: Final = "system:node:"


def is_workload_controller(user: UserInfo) -> bool:
    """Return whether the user is kube-controller-manager, which acts for the authors of pod templates."""
    return user.username in WORKLOAD_CONTROLLERS


def is_node(user: UserInfo) -> bool:
    """Return whether the user is a kubelet.

    The NodeRestriction plugin permits kubelets to create only mirror pods of their own static pods. Static pods run
    even if their mirror pods are refused, so a refusal would only hide them from the cluster.
    """
    return user.username.startswith(NODE_PREFIX) and NODES in user.groups
