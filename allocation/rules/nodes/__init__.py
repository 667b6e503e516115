"""Pure rules of nodes: leases, health, plausibility, unreachable agents."""
