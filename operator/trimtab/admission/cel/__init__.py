"""CEL: the rules of a PlacementAdmission as expressions of ValidatingAdmissionPolicies and MutatingAdmissionPolicies.

:mod:`.expressions` contains what several rules need, :mod:`.documents` builds the policies, :mod:`.reserved_nodes` and
:mod:`.node_selection` convert one rule each per function.
"""
