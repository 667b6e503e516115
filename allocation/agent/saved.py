"""`gpu-agent saved BK-12`: its owner says that everything is saved.

Exit status: 0 when it was said, 2 for a wrong call, 4 when the booking has no devices on this node
now, or when whoever calls may not speak for it.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence

from allocation.agent.owner.shares import SAVED
from allocation.agent.run import NOT_ACTIVE, NotNow, account_here, booking_find, state_option


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    parser = argparse.ArgumentParser(
        prog="gpu-agent saved",
        description="Say that everything is saved, so that a pause needs to wait no longer.",
    )
    state_option(parser, environment)
    parser.add_argument("booking", help="BK-12, or helix.BK-12")
    options = parser.parse_args(arguments)
    root = options.state / "bookings"
    try:
        found = booking_find(root, options.booking, account_here(), time.time())
        # Its time alone counts; a file that is not there is never made.
        os.utime(root / f"{found['tenant']}.{found['booking']}" / SAVED)
    except PermissionError:
        sys.stderr.write(f"only {found['owner']} may say that of {options.booking}\n")
        return NOT_ACTIVE
    except (NotNow, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return NOT_ACTIVE
    return 0
