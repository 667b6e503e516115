"""What an operator may read about moving running work together: proposals, never deeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from allocation.models import Booking, Gpu, PolicyVersion
from allocation.rules.ask_text import duration_text
from allocation.services.policies import policy_of
from allocation.services.snapshot import snapshot_read
from allocation.solver import Place, solve
from allocation.solver.compaction import Proposal, propose


@dataclass(frozen=True, slots=True)
class Move:
    """A running booking that would be paused and resumed elsewhere."""

    booking: Booking
    source: str
    target: str
    lost: str


@dataclass(frozen=True, slots=True)
class Compaction:
    """`booking` could start at once, `sooner` than planned. `lost` is GPU time that is done
    again; `proven`: no cheaper way exists on the GPUs that were looked at."""

    booking: Booking
    places: tuple[str, ...]
    sooner: str
    moves: tuple[Move, ...]
    lost: str
    proven: bool


def compaction_proposals(now: datetime) -> tuple[Compaction, ...]:
    """The proposals for this instant, the best first; solves the whole fleet once.

    Inside `operator_tx`: they name bookings of every tenant.
    """
    snapshot = snapshot_read(now)
    policy = policy_of(PolicyVersion.objects.get(state=PolicyVersion.State.LIVE))
    found = propose(snapshot, solve(snapshot, policy), policy)
    return _said(found)


def _said(found: Sequence[Proposal]) -> tuple[Compaction, ...]:
    wanted = {each.beneficiary for each in found}
    wanted |= {move.booking for each in found for move in each.moves}
    rows = Booking.objects.filter(id__in=wanted).select_related("tenant", "tier")
    bookings = {str(row.id): row for row in rows}
    gpus = {str(gpu.id): gpu for gpu in Gpu.objects.select_related("node")}

    def spot(place: Place) -> str:
        gpu = gpus[place.gpu]
        shape = f", {place.profile} at slot {place.start}" if place.profile else ""
        return f"{gpu.node.name} GPU {gpu.index}{shape}"

    return tuple(
        Compaction(
            booking=bookings[each.beneficiary],
            places=tuple(spot(place) for place in each.places),
            sooner=duration_text(each.sooner),
            moves=tuple(
                Move(
                    bookings[move.booking],
                    spot(move.source),
                    spot(move.target),
                    duration_text(move.cost),
                )
                for move in each.moves
            ),
            lost=duration_text(each.cost),
            proven=each.proven,
        )
        for each in found
    )
