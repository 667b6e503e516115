"""The agent, killed when a notice of a pause is on its disk and nobody was notified of it yet.

Options as for `python -m devtools.simulated`.
"""

import os
import signal
import sys

from agent.owners import OwnerChannel
from devtools.simulated.__main__ import main

tell = OwnerChannel.files_sync


def dies(self: OwnerChannel, now: float) -> str | None:
    """Before files, hooks and signals."""
    if any(held.notice is not None for held in self._records.held.values()):
        os.kill(os.getpid(), signal.SIGKILL)
    return tell(self, now)


if __name__ == "__main__":
    OwnerChannel.files_sync = dies  # type: ignore[method-assign]
    sys.exit(main(sys.argv[1:], os.environ))
