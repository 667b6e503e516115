"""The agent, with a driver that does not come back about the first GPU while there is a file `hang`
in its folder.

Options as for `python -m devtools.simulated`.
"""

import os
import sys
import threading
from pathlib import Path

from devtools.simulated.__main__ import main
from devtools.simulated.calls import Calls
from devtools.simulated.hardware import Hardware

POLL_S = 0.05


def made(calls: Calls, hardware: Hardware) -> None:
    """Watches for the file from the moment at which the driver is there."""
    plain(calls, hardware)
    file = Path(os.environ["GPU_AGENT_STATE"]) / "hang"

    def follow() -> None:
        turn = threading.Event()
        while not turn.wait(POLL_S):
            (calls.hang if file.exists() else calls.answer)(hardware.gpus[0].uuid)

    threading.Thread(target=follow, daemon=True).start()


plain = Calls.__init__

if __name__ == "__main__":
    Calls.__init__ = made  # type: ignore[method-assign, assignment]
    sys.exit(main(sys.argv[1:], os.environ))
