"""What one `POST /bookings` takes in process: `python -m tests.bench.live.writing --posts 300`.

A new database with a small site. One client sends requests to Django's handler in this process,
each with an idempotency key, in transactions that are committed. Nothing decides them. The time
of the web's processor is measured for each request, that of the server process for all.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.bench.machine import machine, report
from tests.servers.servers import Servers

WARM_UP = 20
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
BODY = {"project": "folding", "ask": {"count": 1, "classes": ["h100"], "duration": 3600}}


class WrongResult(Exception):
    """A booking was refused, so the speed does not count."""


def _server_ms(process: int) -> float:
    """Processor time of a server process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND * 1_000


def measure(posts: int) -> dict[str, Any]:
    """Sends the requests."""
    from django.db import connection  # noqa: PLC0415 (settings are there only now)

    from tests.api.builders import a_site, said  # noqa: PLC0415

    site = a_site(budget="10000000")
    seen: list[str] = []

    def note(execute: Any, sql: str, *rest: Any) -> Any:  # noqa: ANN401 (as Django calls it)
        seen.append(sql)
        return execute(sql, *rest)

    def post() -> None:
        answer = site.researcher.post("bookings", BODY, idempotency_key=str(uuid4()))
        if answer.status_code != 201:
            raise WrongResult(said(answer))

    for _ in range(WARM_UP):
        post()
    with connection.execute_wrapper(note):
        post()
    process = connection.connection.info.backend_pid
    took, before = list[float](), _server_ms(process)
    for _ in range(posts):
        began = time.process_time()
        post()
        took.append((time.process_time() - began) * 1_000)
    took.sort()
    return {
        "bench": "writing",
        "posts": posts,
        "statements": len(seen),
        "web_ms_p25": round(took[posts // 4], 2),
        "web_ms_p50": round(took[posts // 2], 2),
        "server_ms": round((_server_ms(process) - before) / posts, 2),
        "machine": machine(),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--posts", type=int, default=300)
    parser.add_argument("--out", type=Path, help="folder for the JSON")
    options = parser.parse_args()
    servers = Servers()
    os.environ.update(servers.environment())
    os.environ |= dict.fromkeys(("CALLS_PER_TOKEN", "CALLS_PER_ADDRESS"), "1000000")
    import django  # noqa: PLC0415 (reads the settings)

    django.setup()
    try:
        servers.database_ensure()
        servers.valkey_ensure()
        report("writing", measure(options.posts), options.out)
    finally:
        servers.close()


if __name__ == "__main__":
    main()
