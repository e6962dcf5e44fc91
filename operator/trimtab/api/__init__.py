"""trimtab's own API: custom resources as typed values, their definitions, conditions and reason codes."""
