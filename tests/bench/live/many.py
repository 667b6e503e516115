"""Turns that decide many bookings, by their parts: `python -m tests.bench.live.many`.

Two sites, each in a new database. Times are seconds of processor of this process (`cpu`) and of the
server process of its connection (`server`), because they depend less on other work on the machine,
and of the clock (`wall`).

`burst`: 1,000 bookings of one GPU are requested at once on 1,040 free GPUs. Turns run until all of
them are starting and the nodes' documents are published.

`behind`: 1,100 bookings of one organisation wait for 28 GPUs. Before each turn some of its bookings
are requested or cancelled, and another organisation requests one, which fits nowhere at once.
`decided` is the part of the turn until the commit of that decision.
"""

import argparse
import os
import random
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.bench.live.telemetry import database
from tests.bench.live.turn import CYCLE, PARTS, Watch
from tests.bench.machine import machine, report

if TYPE_CHECKING:
    from allocation.services.decide.cycle import CycleResult
    from tests.builders_allocation import Lab

GPUS_OF_NODE = 8
TURN_EVERY = timedelta(seconds=5)
CLOCKS = ("cpu", "server", "wall")


class Turns:
    """Turns of one process, with the times of their parts."""

    def __init__(self) -> None:
        """Begins without a turn."""
        from django.db import connection  # noqa: PLC0415 (Django is there only now)

        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            self._server = cursor.fetchone()[0]
        self.found: list[dict[str, dict[str, float]]] = []

    def run(self, now: datetime, *, until: str | None = None) -> "CycleResult":
        """One turn at `now`. `until`: the booking of which `decided` is measured."""
        from allocation.services.decide import cycle  # noqa: PLC0415
        from allocation.services.decide.decision_log import decision_log  # noqa: PLC0415
        from allocation.services.plans import transactions  # noqa: PLC0415
        from allocation.services.snapshot.kept import snapshot_keeper  # noqa: PLC0415
        from tests.roles import as_system  # noqa: PLC0415

        watch, began, decided = Watch(), self._clocks(), dict[str, float]()

        def piece_write(*given: Any) -> object:  # noqa: ANN401 (whatever the function takes)
            done = write(*given)
            if any(name == until for _, name in given[1].parts):
                decided.update(self._since(began))
            return done

        write: Callable[..., object] = transactions._piece_write
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(transactions, "_piece_write", piece_write))
            for name, part in PARTS.items():
                if hasattr(cycle, name):
                    stack.enter_context(
                        mock.patch(f"{CYCLE}.{name}", watch.timed(part, getattr(cycle, name)))
                    )
            for owner, name in ((decision_log, "record"), (snapshot_keeper, "take")):
                timed = watch.timed(name, getattr(owner, name))
                stack.enter_context(mock.patch.object(owner, name, timed))
            with as_system():
                done = cycle.cycle_run(now)
        parts = {part: {"cpu": watch.cpu[part], "wall": watch.wall[part]} for part in watch.wall}
        self.found.append({"turn": self._since(began), **parts, **({"decided": decided} if decided else {})})
        return done

    def _clocks(self) -> dict[str, float]:
        fields = Path(f"/proc/{self._server}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        server = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return dict(zip(CLOCKS, (time.process_time(), server, time.perf_counter()), strict=True))

    def _since(self, began: Mapping[str, float]) -> dict[str, float]:
        return {name: at - began[name] for name, at in self._clocks().items()}


def nodes_make(gpus: int) -> None:
    """Enrolled nodes with whole GPUs of one class."""
    from allocation.models import Gpu, Node, Rack  # noqa: PLC0415 (Django is there only now)
    from tests.builders_allocation import a_model  # noqa: PLC0415
    from tests.roles import as_system  # noqa: PLC0415

    model = a_model()
    with as_system():
        rack = Rack.objects.create(name="bench")
        nodes = Node.objects.bulk_create(
            Node(
                name=f"n{n:04}",
                rack=rack,
                state="ready",
                key_version=1,
                key_confirmed=1,
                link_digest=secrets.token_bytes(32),
            )
            for n in range(-(-gpus // GPUS_OF_NODE))
        )
        Gpu.objects.bulk_create(
            Gpu(
                number=number,
                node=nodes[number // GPUS_OF_NODE],
                index=number % GPUS_OF_NODE,
                uuid=f"GPU-{number}",
                model=model,
                gpu_class=model.gpu_class,
                domain=0,
            )
            for number in range(gpus)
        )


def request(lab: "Lab", count: int, now: datetime, hours: float = 1 / 6) -> list[str]:
    """Requests bookings of one GPU in one transaction; returns their ids."""
    from django.db import transaction  # noqa: PLC0415 (Django is there only now)

    from allocation.services.bookings.creation import booking_request  # noqa: PLC0415
    from tests.builders_allocation import a_booking_request, an_ask  # noqa: PLC0415
    from tests.roles import as_system  # noqa: PLC0415

    wanted = a_booking_request(lab.project, an_ask(hours=hours))
    with as_system(), transaction.atomic():
        return [str(booking_request(actor=lab.actor, request=wanted, now=now).id) for _ in range(count)]


def owner_role() -> None:
    """As the solver's process: the connection keeps its own role between turns."""
    from django.db import connection  # noqa: PLC0415 (Django is there only now)

    from tests.roles import as_system  # noqa: PLC0415

    with as_system(), connection.cursor() as cursor:
        cursor.execute("RESET ROLE")


def burst(count: int) -> dict[str, Any]:
    """`count` bookings on as many free GPUs and some more."""
    with database() as servers:
        servers.valkey_ensure()
        from allocation.models import Booking  # noqa: PLC0415 (Django is there only now)
        from tests.builders_allocation import NOW, a_lab  # noqa: PLC0415
        from tests.roles import as_system  # noqa: PLC0415

        lab = a_lab("bench", gpus=0, money="100000000", limit=2 * count)
        nodes_make(count + count // 25)
        owner_role()
        turns, now = Turns(), NOW
        request(lab, 1, now)
        turns.run(now)
        first = turns.found.pop()
        request(lab, count, now)
        starting = 1
        while starting <= count and len(turns.found) < 20:
            now += TURN_EVERY
            turns.run(now)
            with as_system():
                starting = Booking.objects.filter(state="starting").count()
        if starting <= count:
            raise RuntimeError(f"only {starting} of {count} are starting")
        return {"bookings": count, "turns": len(turns.found), "first": rounded(first), "all": total(turns)}


def behind(count: int, rounds: int, gpus: int) -> dict[str, Any]:
    """Another organisation's requests behind `count` that wait."""
    with database() as servers:
        servers.valkey_ensure()
        from tests.builders_allocation import NOW, a_lab  # noqa: PLC0415 (Django is there only now)

        noisy = a_lab("noisy", gpus=0, money="100000000", limit=gpus // 2)
        other = a_lab("other", gpus=0, money="100000000", limit=gpus // 2)
        nodes_make(gpus)
        owner_role()
        turns, now, dice = Turns(), NOW, random.Random(1)  # noqa: S311 (not for secrets)
        waiting = request(noisy, count, now)
        while turns.run(now).outcome != "unchanged":
            now += TURN_EVERY
        settling, turns.found = turns.found, []
        for _ in range(rounds):
            now += TURN_EVERY
            waiting += request(noisy, 3, now)
            cancel(noisy, [waiting.pop(dice.randrange(len(waiting))) for _ in range(3)], now)
            (asked,) = request(other, 1, now)
            turns.run(now, until=asked)
            cancel(other, [asked], now)
        return {
            "waiting": count,
            "settling": [rounded({"turn": each["turn"]})["turn"] for each in settling],
            "one_more": medians(turns),
        }


def cancel(lab: "Lab", bookings: list[str], now: datetime) -> None:
    """Cancels what is open of some bookings."""
    from allocation.models import Booking  # noqa: PLC0415 (Django is there only now)
    from allocation.rules.states import OPEN  # noqa: PLC0415
    from allocation.services.bookings.release import booking_cancel, booking_release  # noqa: PLC0415
    from tests.roles import as_system  # noqa: PLC0415

    with as_system():
        for booking in Booking.objects.filter(id__in=bookings, state__in=OPEN):
            act = booking_cancel if booking.ready_at is None else booking_release
            act(actor=lab.actor, booking=booking, now=now)


def total(turns: Turns) -> dict[str, dict[str, float]]:
    """The sums of all turns by part."""
    found: dict[str, dict[str, float]] = {}
    for each in turns.found:
        for part, clocks in each.items():
            mine = found.setdefault(part, {})
            for clock, seconds in clocks.items():
                mine[clock] = mine.get(clock, 0.0) + seconds
    return rounded(found)


def medians(turns: Turns) -> dict[str, dict[str, float]]:
    """The medians of all turns by part."""
    names = {part: tuple(clocks) for each in turns.found for part, clocks in each.items()}
    return rounded(
        {
            part: {
                clock: median(each[part][clock] for each in turns.found if part in each) for clock in clocks
            }
            for part, clocks in names.items()
        }
    )


def rounded(found: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Seconds with three digits."""
    return {
        part: {clock: round(seconds, 3) for clock, seconds in clocks.items()}
        for part, clocks in found.items()
    }


def arguments() -> argparse.ArgumentParser:
    """The options, with the figures of the goals as defaults."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.many", description=__doc__)
    parser.add_argument("--site", choices=("burst", "behind"), required=True)
    parser.add_argument("--bookings", type=int, default=1_000)
    parser.add_argument("--waiting", type=int, default=1_100)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--gpus", type=int, default=28, help="of the site behind")
    parser.add_argument("--out", type=Path, help="folder for the JSON")
    return parser


def main() -> None:
    """Measures and prints."""
    options = arguments().parse_args()
    found = (
        burst(options.bookings)
        if options.site == "burst"
        else behind(options.waiting, options.rounds, options.gpus)
    )
    report(
        f"many-{options.site}", {"bench": f"many-{options.site}", **found, "machine": machine()}, options.out
    )


if __name__ == "__main__":
    main()
