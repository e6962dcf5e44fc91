"""What would have to change for a pod that fits nowhere to fit: one kind of remedy a file.

Nothing is guessed. A remedy proposes a change of concrete objects; the change is made in a fork of the snapshot, the
placer judges again, and only what then passes is told. :mod:`trimtab.placement.remedies.search` finds the cheapest,
:mod:`trimtab.placement.remedies.costs` says what is cheap and why, :mod:`trimtab.placement.remedies.registry` lists
the remedies.
"""
