"""Changes of bookings that have not begun: the whole exchange, or nothing of it."""

from dataclasses import replace

import pytest

from solver import (
    Assign,
    Maintenance,
    Plan,
    Request,
    Snapshot,
    Waiting,
    decode,
    encode,
    solve,
)
from solver.model.inputs import Change, Held, Strength
from tests.solver.builders import (
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_limit,
    a_planned_start,
    a_request,
    a_share,
    a_snapshot,
    an_ask,
    gpus,
    whole,
)


def held_window(booking: str, numbers: range, first: int, last: int) -> tuple[Held, ...]:
    """A firm window of a booking on these GPUs of the first node."""
    return tuple(
        replace(
            a_held(f"n1-{n}", booking=booking, starts=first * HOUR, ends=last * HOUR),
            level="any",
            tenant="lab" if booking in ("mine", "own") else "other",
            project="folding",
        )
        for n in numbers
    )


def a_change(request: Request, *, booking: str = "mine", strength: Strength = "firm") -> Change:
    return Change(booking, replace(request, booking=f"change of {booking}", revision=1), strength)


def given(plan: Plan) -> dict[str, tuple[int, int, int]]:
    """Start and end in hours, and the number of GPUs."""
    rows: tuple[Assign | Waiting, ...] = (*plan.assigns, *plan.waits)
    return {r.booking: ((r.starts - NOON) // HOUR, (r.ends - NOON) // HOUR, len(r.places)) for r in rows}


def decided(snapshot: Snapshot) -> Plan:
    """The plan; it is the same from the snapshot's bytes, and can be stored."""
    plan = solve(snapshot, POLICY)
    assert decode(Plan, encode(plan)) == plan
    assert encode(solve(decode(Snapshot, encode(snapshot)), POLICY)) == encode(plan)
    return plan


def test_a_window_in_the_way_keeps_the_booking_where_it_is() -> None:
    held = (*held_window("mine", range(4), 2, 4), *held_window("other", range(8), 4, 5))
    request = a_request(ask=an_ask(4), hours=3, earliest=2 * HOUR, fixed=True)
    plan = decided(a_snapshot(held=held, changes=(a_change(request),)))
    (answer,) = plan.changes
    assert [each.code for each in answer.reasons][:2] == ["change_no_room", "gpus_busy"]
    assert (plan.assigns, plan.waits, plan.moves, plan.refusals) == ((), (), (), ())


@pytest.mark.parametrize("share", [None, 250], ids=["whole", "share"])
def test_maintenance_of_a_bookings_gpu_is_in_the_way_of_its_change(share: int | None) -> None:
    """The booking keeps what it has, and the cycle decides the others."""
    (row,) = held_window("mine", range(1), 2, 4)
    row = replace(row, place=replace(row.place, share=share))
    ask = an_ask(1) if share is None else a_share(share)
    longer = a_change(a_request(ask=ask, hours=3, earliest=2 * HOUR, fixed=True))
    asked = a_request("new", an_ask(1), hours=1, earliest=3 * HOUR, fixed=True)
    site = a_snapshot(asked, fleet=gpus(1), held=(row,), changes=(longer,))
    away = Maintenance("n1-0", NOON + 3 * HOUR, NOON + 4 * HOUR)
    plan = decided(replace(site, blackouts=(away,)))
    assert [each.granted for each in plan.changes] == [False]
    assert [each.booking for each in plan.refusals] == ["new"]
    assert decided(site).changes[0].granted


def test_a_change_that_waits_for_room_is_answered_by_a_grant_alone() -> None:
    held = held_window("mine", range(4), 2, 4)
    full = (*held, *held_window("other", range(8), 4, 5))
    request = a_request(ask=an_ask(4), hours=3, earliest=2 * HOUR, fixed=True)
    waiting = replace(a_change(request), waiting=True)
    assert decided(a_snapshot(held=full, changes=(waiting,))).changes == ()
    plan = decided(a_snapshot(held=held, changes=(waiting,)))
    assert (plan.changes[0].granted, given(plan)) == (True, {"mine": (2, 5, 4)})


def test_any_earlier_start_becomes_the_fixed_one() -> None:
    held = (*held_window("mine", range(8), 6, 8), *held_window("other", range(8), 0, 3))
    request = a_request(ask=an_ask(8), hours=2, latest=8 * HOUR - 300)
    flexible = a_change(request)
    plan = decided(a_snapshot(held=held, changes=(flexible,)))
    assert [each.code for each in plan.changes[0].reasons] == ["change_weaker"]
    plan = decided(a_snapshot(held=held, changes=(replace(flexible, sooner=True),)))
    assert (plan.changes[0].granted, given(plan)) == (True, {"mine": (3, 5, 8)})
    assert [each.booking for each in plan.assigns] == ["mine"], "it is firm at once"


def test_its_own_old_room_and_quota_count_as_free_for_the_change() -> None:
    held = held_window("mine", range(6), 2, 4)
    request = a_request(ask=an_ask(8), hours=2, earliest=3 * HOUR, fixed=True)
    limits = (a_limit("lab", 8),)
    plan = decided(a_snapshot(held=held, limits=limits, changes=(a_change(request),)))
    assert plan.changes[0].granted
    assert given(plan) == {"mine": (3, 5, 8)}


def test_an_expected_start_behind_makes_way_for_a_change_as_for_a_newcomer() -> None:
    held = held_window("mine", range(4), 2, 4)
    behind = a_request(
        "behind",
        an_ask(8),
        hours=1,
        earliest=4 * HOUR,
        submitted=100,
        planned=a_planned_start(4 * HOUR, 1, *(whole(f"n1-{n}") for n in range(8))),
    )
    request = a_request(ask=an_ask(4), hours=3, earliest=2 * HOUR, fixed=True, submitted=50)
    plan = decided(a_snapshot(behind, held=held, changes=(a_change(request),)))
    assert plan.changes[0].granted
    assert given(plan) == {"mine": (2, 5, 4), "behind": (5, 6, 8)}
    late = replace(a_change(request), target=replace(a_change(request).target, submitted=NOON))
    kept = decided(a_snapshot(behind, held=held, changes=(late,)))
    assert not kept.changes[0].granted
    assert "behind" not in given(kept) or given(kept)["behind"] == (4, 5, 8)


def test_a_waiting_booking_is_exchanged_only_within_the_bound_that_was_accepted() -> None:
    busy = tuple(a_held(f"n1-{n}", ends=2 * HOUR) for n in range(2))
    a, b, c = (
        a_request(
            name,
            hours=4,
            submitted=at,
            planned=a_planned_start(first * HOUR, 4, whole(place)),
        )
        for name, at, place, first in (
            ("mine", 1, "n1-0", 2),
            ("b", 2, "n1-1", 2),
            ("c", 3, "n1-0", 6),
        )
    )
    request = a_request(ask=an_ask(2), hours=4, submitted=100)
    site = {"fleet": gpus(2), "held": busy}
    bound = replace(request, latest=NOON + 6 * HOUR)
    kept = decided(
        a_snapshot(a, b, c, **site, changes=(a_change(bound, strength="expected"),))  # type: ignore[arg-type]  # as a_snapshot takes
    )
    assert not kept.changes[0].granted
    free = replace(request, latest=NOON + 15 * HOUR)
    plan = decided(
        a_snapshot(a, b, c, **site, changes=(a_change(free, strength="expected"),))  # type: ignore[arg-type]  # as a_snapshot takes
    )
    assert plan.changes[0].granted
    assert given(plan)["mine"] == (10, 14, 2)
    assert given(plan)["b"] == (2, 6, 1)


def test_a_guaranteed_start_is_not_exchanged_for_one_that_others_may_delay() -> None:
    busy = tuple(a_held(f"n1-{n}", ends=2 * HOUR) for n in range(8))
    places = [whole(f"n1-{n}") for n in range(4)]
    mine = a_request(
        "mine",
        an_ask(4),
        hours=2,
        planned=a_planned_start(2 * HOUR, 2, *places, strength="guaranteed"),
    )
    limits = (a_limit("lab", 4, borrow=None), a_limit("other", 4))
    request = a_request(ask=an_ask(6), hours=2, submitted=9, tier="flex")
    site = a_snapshot(replace(mine, tier="flex"), held=busy, limits=limits)
    kept = decided(replace(site, changes=(a_change(request, strength="guaranteed"),)))
    assert [each.code for each in kept.changes[0].reasons] == ["change_weaker"]
    plan = decided(replace(site, changes=(a_change(request, strength="expected"),)))
    assert plan.changes[0].granted
    assert given(plan) == {"mine": (2, 4, 6)}


def test_a_booking_that_begins_in_this_cycle_keeps_what_it_has() -> None:
    held = tuple(replace(r, starts=NOON + 30) for r in held_window("own", range(4), 1, 2))
    request = a_request(ask=an_ask(4), hours=3, earliest=2 * HOUR, fixed=True)
    plan = decided(a_snapshot(held=held, changes=(a_change(request, booking="own"),)))
    assert [each.code for each in plan.changes[0].reasons] == ["change_begun"]


def a_group() -> tuple[tuple[Held, ...], tuple[Change, ...]]:
    """Two dates of 5 GPUs that move to where the other was, with 6: it works only together."""
    held = (*held_window("mine", range(5), 2, 4), *held_window("own", range(5), 4, 6))
    later = a_request("mine", ask=an_ask(6), hours=2, earliest=4 * HOUR, fixed=True)
    sooner = a_request("own", ask=an_ask(6), hours=2, earliest=2 * HOUR, fixed=True)
    changes = tuple(
        replace(a_change(request, booking=request.booking), group="series") for request in (later, sooner)
    )
    return held, changes


def test_a_group_of_changes_is_granted_together() -> None:
    held, changes = a_group()
    plan = decided(a_snapshot(held=held, changes=changes))
    assert [each.granted for each in plan.changes] == [True, True]
    assert given(plan) == {"mine": (4, 6, 6), "own": (2, 4, 6)}
    alone = tuple(replace(each, group="") for each in changes)
    plan = decided(a_snapshot(held=held, changes=alone))
    assert not all(each.granted for each in plan.changes)


def test_a_group_of_changes_of_which_one_fails_changes_nothing() -> None:
    held, changes = a_group()
    held += held_window("other", range(5, 8), 4, 5)
    plan = decided(a_snapshot(held=held, changes=changes))
    codes = {each.booking: each.reasons[0].code for each in plan.changes}
    assert codes == {"mine": "change_no_room", "own": "series_conflict"}
    assert (plan.assigns, plan.moves) == ((), ())
