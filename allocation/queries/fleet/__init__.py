"""Queries on hardware: catalogue, nodes, maintenance, telemetry."""
