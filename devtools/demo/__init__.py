"""The demo site, made by running the services on a simulated clock."""
