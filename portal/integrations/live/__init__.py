"""Live pages: committed changes, pushed as hints to open browsers."""
