"""Development tools, which are not shipped."""
