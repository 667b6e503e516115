"""A site of three machines, as docs/deployment.md describes it."""
