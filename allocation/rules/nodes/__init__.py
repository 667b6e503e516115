"""Rules about nodes: leases, health, clocks, unreachable agents. Pure."""
