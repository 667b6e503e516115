"""Use of the host: what programs of a booking use besides GPUs, and free cores for work that waits."""
