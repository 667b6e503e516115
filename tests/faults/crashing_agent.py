"""The agent, killed in the middle of its first MIG slice: the instance is there, unusable yet.

Options as for `python -m devtools.simulated`.
"""

import os
import signal
import sys

from devtools.simulated.__main__ import main
from devtools.simulated.hardware import Gpu, Hardware, Instance


def dies(_: Hardware, __: Gpu, ___: Instance, ____: int | None = None) -> None:
    """Between the two steps that make a slice."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    Hardware.compute_create = dies  # type: ignore[method-assign, assignment]
    sys.exit(main(sys.argv[1:], os.environ))
