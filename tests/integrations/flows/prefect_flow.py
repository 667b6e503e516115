"""A flow that books GPUs for a while, and waits for them."""

import os
import sys

from gpu_booking import GpuPortal
from prefect import flow


@flow
def train() -> None:
    """Books, works and releases."""
    portal = GpuPortal(url=os.environ["GPU_URL"], token=os.environ["GPU_TOKEN"], poll_seconds=0.05)
    portal.save("gpu", overwrite=True)
    with GpuPortal.load("gpu").booking("1 h100 1h", project="folding", tier="spot") as number:
        sys.stdout.write(f"trains on {number}\n")
        if os.environ.get("FAILS"):
            raise RuntimeError("no convergence")


if __name__ == "__main__":
    train()
