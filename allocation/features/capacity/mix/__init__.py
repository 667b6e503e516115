"""The mix of own, reserved and burst GPUs for past demand, and what another one would have cost."""
