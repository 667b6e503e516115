"""Prepares the migrated cluster that all test processes copy: `make test` has it before they start.

Running all migrations takes half a minute on one core, for which each of them would wait.
"""

import os

from tests.servers.servers import Servers


def main() -> None:
    """Make the cluster of the present code, unless it is kept."""
    servers = Servers()
    os.environ.update(servers.environment())
    try:
        servers.postgres_ensure()
    finally:
        servers.close()


if __name__ == "__main__":
    main()
