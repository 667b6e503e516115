"""The hardware as the solver sees it: MIG geometry, topology, and GPUs as columns of arrays."""
