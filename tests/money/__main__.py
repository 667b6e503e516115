"""Random money games by command: `python -m tests.money --games N`. The last line is JSON.

One booking's life with pauses and failures, and one booking's changes, each against its oracle.
"""

import argparse
import json
import sys
import time

from tests.money import changes, games


def main() -> None:
    """Plays both kinds; a game in which somebody gains ends the command with its story."""
    parser = argparse.ArgumentParser(prog="python -m tests.money", description=__doc__)
    parser.add_argument("--games", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.process_time()
    made = changes.play(options.games, options.seed)
    minutes = games.play(options.games, options.seed)
    found = {
        "games": options.games,
        "changes": made,
        "minutes_of_lives": minutes,
        "gains": 0,
        "cpu_seconds": round(time.process_time() - began, 1),
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
