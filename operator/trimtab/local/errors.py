"""How the local control plane fails by itself. What it was asked wrongly is :class:`trimtab.kube.errors.InputError`."""


class LocalError(Exception):
    """Something went wrong at run time; the message is one that a person can act on."""
