"""What fields may hold: the ranges and formats that the API server's validation demands (k8s.io/kubernetes v1.36).

Only objects read from files are checked: a live API server has checked what it sends, perhaps by newer rules, and an
object must never vanish from a live picture because a value looks odd to us. Of each kind the fields that
:mod:`trimtab.kube.wire.json` reads are checked, no others, for nobody plans with the rest.

A file may be written by hand, or come from a cluster as old as Kubernetes 1.11. So

* what is left out is no fault where the API server, a controller or the kubelet fills it in (a phase, a protocol, an
  operator), nor where nothing depends on it (an owner's UID, a container's image);
* where the API server lets stored objects pass that it would not take anew, so do we, unless Kubernetes itself cannot
  evaluate them.

The rules are tables: a :class:`~trimtab.kube.wire.validation.checks.Shape` for each message, one module per subject,
:mod:`~trimtab.kube.wire.validation.kinds` for what belongs to which kind. The first fault of an object is told.
"""

from trimtab.kube.wire.validation.validator import Validator

__all__ = ["Validator"]
