"""Objects with one field changed, good and bad: what reading files is held to, and the real API server in turn.

``faults.txt`` and ``sound.txt`` are the tables; their first lines describe the columns.
"""
