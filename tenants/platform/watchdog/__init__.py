"""A process next to each program that ends it when it is deaf, so that its supervisor starts it."""
