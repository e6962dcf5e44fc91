"""trimtab's own API: custom resources and documents as typed values, their schemas, conditions and reason codes."""
