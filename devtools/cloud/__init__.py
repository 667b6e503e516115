"""A small OpenStack on loopback: what the portal asks of one, and machines that are simulated nodes."""
