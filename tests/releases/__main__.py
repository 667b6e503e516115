"""Keeps the database of a running demo, and REST's description: `python -m tests.releases --var DIR 1.0`.

The demo should have run for some minutes: then its past week, bookings, money, decisions and messages are in
the dump. Its accounts, passwords and tokens are random, and only that demo knew them.
"""

import argparse
import json
import lzma
import subprocess
import sys
from pathlib import Path

RELEASES = Path(__file__).parent
ROOT = RELEASES.parents[1]


def main() -> None:
    """Writes the dump, as SQL that any later PostgreSQL reads, and the description."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--var", type=Path, required=True, help="the folder of the running demo")
    options = parser.parse_args()
    servers = options.var.resolve() / "servers"
    password = json.loads((options.var / "secrets.json").read_text())["postgres"]
    dsn = f"postgresql://postgres:{password}@/portal?host={servers / 'sockets'}"
    (tool,) = servers.glob("server/**/bin/pg_dump")
    dumped = subprocess.run([tool, "--rows-per-insert=500", dsn], check=True, stdout=subprocess.PIPE)
    written = RELEASES / f"{options.version}.sql.xz"
    written.write_bytes(lzma.compress(dumped.stdout, preset=9))
    described = (ROOT / "docs/openapi.yaml").read_bytes()
    (RELEASES / f"{options.version}.openapi.yaml.xz").write_bytes(lzma.compress(described, preset=9))
    sys.stdout.write(f"{written}: {written.stat().st_size // 1024} kB\n")


if __name__ == "__main__":
    main()
