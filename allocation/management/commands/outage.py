"""Plans an outage of the portal. It extends all leases first, so that no booking is interrupted."""

import time
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from allocation.management.operator import OperatorCommand, operator_argument, operator_required
from allocation.models import PortalMode
from allocation.queries.fleet.portal_modes import mode_in_force
from allocation.services.operate.portal_modes import (
    OUTAGE,
    NodeLease,
    leases_of_nodes,
    length_read,
    mode_end,
    outage_begin,
    outage_close,
)
from tenants.web.parts import counted

LOOK_SECONDS = 1.0


class Command(OperatorCommand):
    """`manage.py outage begin --for 20m --reason "New version" --operator ada`, then `end`."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the action and its parameters."""
        parser.add_argument("act", choices=["begin", "end", "status"])
        parser.add_argument("--for", dest="length", default="20m", help="20m; at most 4h")
        parser.add_argument("--reason", default="The portal is being upgraded", help="shown to everyone")
        operator_argument(parser)
        parser.add_argument("--wait", type=int, default=60, help="seconds to wait for agents to confirm")
        parser.add_argument(
            "--anyway", action="store_true", help="continue even if not every node has confirmed"
        )

    def handle(self, *_: object, **options: Any) -> None:  # noqa: ANN401 (the framework's signature)
        """Carries out the action. Exits with 1 while the portal must not be stopped."""
        getattr(self, f"_{options['act']}")(options)

    def _begin(self, options: dict[str, Any]) -> None:
        operator = operator_required(options["operator"])
        length = length_read(options["length"]) or timedelta(0)
        mode = outage_begin(operator=operator, length=length, reason=options["reason"], now=timezone.now())
        self.stdout.write(f"Announced until {mode.until:%H:%M:%S} UTC. Leases are extended.")
        unsafe = self._awaited(mode, options["wait"])
        if unsafe and not options["anyway"]:
            raise CommandError(
                "Do not stop the portal yet: the outage would interrupt work on these nodes. "
                "Run this again when they are reachable, or with --anyway."
            )
        outage_close(operator=operator, now=timezone.now())
        self.stdout.write("Changes by members are refused. You can stop the portal now.")

    def _awaited(self, mode: PortalMode, seconds: int) -> list[NodeLease]:
        """Waits until the outage would interrupt no work. Returns the nodes that are not safe."""
        until = time.monotonic() + seconds
        while True:
            nodes = leases_of_nodes(mode, timezone.now())
            unsafe = [node for node in nodes if not node.is_safe]
            if not unsafe or time.monotonic() >= until:
                break
            time.sleep(LOOK_SECONDS)
        self._say(nodes)
        return unsafe

    def _say(self, nodes: list[NodeLease]) -> None:
        confirmed = sum(node.state == "confirmed" for node in nodes)
        self.stdout.write(f"Confirmed: {confirmed} of {counted(len(nodes), 'node')}.")
        for node in nodes:
            if node.state != "confirmed":
                work = "has work on lease" if node.holds_work else "no work on lease"
                self.stdout.write(f"  {node.node} ({work}): {node.means}")

    def _end(self, options: dict[str, Any]) -> None:
        mode_end(kind=OUTAGE, operator=operator_required(options["operator"]), now=timezone.now())
        self.stdout.write("The outage is over. New leases have their usual length again.")

    def _status(self, _: dict[str, Any]) -> None:
        now = timezone.now()
        mode = mode_in_force(OUTAGE, now)
        if mode is None:
            self.stdout.write("No outage is planned.")
            return
        closed = "closed to members" if mode.closed_at else "announced"
        self.stdout.write(f"{closed}, until {mode.until:%d %b %H:%M:%S} UTC: {mode.reason}")
        self._say(leases_of_nodes(mode, now))
