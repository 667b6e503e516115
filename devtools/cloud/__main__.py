"""`python -m devtools.cloud --port 9000 --folder DIR`: the simulated cloud of a demo."""

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from threading import Thread

from devtools.cloud.machines import Machines
from devtools.cloud.openstack import OpenStack, server_open

USER = "demo"
TURN_SECONDS = 0.5


def main(arguments: list[str]) -> int:
    """Serves until a signal asks to stop."""
    parser = argparse.ArgumentParser(prog="python -m devtools.cloud")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--boot-seconds", type=float, default=30.0)
    options = parser.parse_args(arguments)
    machines = Machines(options.folder, options.boot_seconds)
    cloud = OpenStack(machines, USER, os.environ["CLOUD_PASSWORD"], time.time)
    server = server_open(cloud, "127.0.0.1", options.port)
    stopped: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda found, _: stopped.append(found))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        while not stopped:
            cloud.turn()
            time.sleep(TURN_SECONDS)
    finally:
        server.shutdown()
        machines.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
