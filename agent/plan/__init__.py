"""Plans the next steps on one GPU. Pure."""
