"""Pure rules of requests, charges and nodes."""
