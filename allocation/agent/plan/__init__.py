"""What to do next on one GPU. Pure."""
