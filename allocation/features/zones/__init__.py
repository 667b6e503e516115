"""Zones: where racks stand, what energy costs and emits there, and the storage of nodes."""
