"""The demo site, lived through by the services with a clock."""
