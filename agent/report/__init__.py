"""What the agent reports to the portal and to Prometheus."""
