"""Read side of hardware: catalogue, nodes, maintenance, telemetry."""
