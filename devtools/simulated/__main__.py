"""`python -m devtools.simulated --simulate h100:8 …`: `gpu-agent` on simulated GPUs.

Takes every option and command of `gpu-agent`, and says with `--simulate` which GPUs there are.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

from agent import __main__ as agent
from devtools.simulated.drivers import DEFAULT, DRIVERS
from devtools.simulated.platform import simulated_platform

# Commands that look at no GPU; what follows them may be another program's options.
_PASSED_ON = (["run"], ["saved"], ["unit"])


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Returns the exit status of the agent."""
    if list(arguments[:1]) in _PASSED_ON:
        return agent.main(arguments, environment)
    parser = argparse.ArgumentParser(prog="python -m devtools.simulated", add_help=False, allow_abbrev=False)
    parser.add_argument("--simulate", required=True, metavar="MODEL:COUNT[,…]")
    parser.add_argument("--simulate-driver", choices=tuple(DRIVERS), default=DEFAULT)
    chosen, others = parser.parse_known_args(arguments)
    try:
        platform = simulated_platform(chosen.simulate, chosen.simulate_driver)
    except ValueError as error:
        parser.error(str(error))
    return agent.main(others, environment, platform)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
