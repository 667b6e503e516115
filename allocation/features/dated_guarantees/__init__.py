"""Dated guarantees: an organisation, lab or project is guaranteed another number between two dates."""
