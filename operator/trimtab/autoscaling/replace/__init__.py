"""Replacing nodes by fewer or cheaper ones: what is planned, and the record by which it is carried through.

Nothing is imported here: scale-down reads the record, and the planner reads scale-down.
"""
