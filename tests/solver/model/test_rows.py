"""Snapshots and plans by rows: a delta and its digest say exactly what changed."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from solver import Cap, Plan, Snapshot, encode, solve
from solver.model.ordering import in_order
from solver.model.plan import DroppedPause
from solver.model.rows import (
    Rows,
    RowsDigest,
    advance,
    delta_decode,
    delta_encode,
    difference,
    document_of,
    is_in_order,
    rows_of,
)
from tests.golden.sites import crowded, repeated_maintenance
from tests.solver.builders import DAY, NOON, POLICY, a_planned_start, a_request, a_snapshot, whole
from tests.solver.dense import a_dense_site
from tests.solver.strategies import the_next


def days(sites: int, turns: int) -> Iterator[list[tuple[Snapshot, Plan]]]:
    """Sites that live for some turns, with the plan of each."""
    for seed in range(sites):
        site = replace(a_dense_site(seed), now=NOON)
        day = []
        for turn in range(turns):
            plan = solve(site, POLICY)
            day.append((site, plan))
            site = the_next(site, plan, 3_607 + turn)
        yield day


@pytest.fixture(scope="module")
def lived() -> list[list[tuple[Snapshot, Plan]]]:
    """Ten dense sites of four turns, and two of other kinds."""
    return [
        *days(10, 4),
        [(site, solve(site, POLICY)) for site in (crowded(), repeated_maintenance())],
    ]


def test_rows_keep_every_byte(lived: list[list[tuple[Snapshot, Plan]]]) -> None:
    for site, plan in (turn for day in lived for turn in day):
        assert encode(document_of(Snapshot, rows_of(site))) == encode(site)
        assert is_in_order(rows_of(plan))
        assert document_of(Plan, rows_of(plan)) == plan


def test_rows_with_equal_keys_are_all_kept_in_any_order() -> None:
    caps = (Cap("lab", "h100", 5, 0, 9), Cap("lab", "h100", 5, 0, 7), Cap("lab", "h100", 5, 0, 9))
    site = replace(crowded(), caps=caps)
    rows = rows_of(site)
    assert len(rows.tables["caps"]) == 3
    assert rows_of(replace(site, caps=caps[::-1])) == rows
    assert sorted(document_of(Snapshot, rows).caps, key=repr) == sorted(caps, key=repr)


def test_a_planned_start_has_its_stored_name_in_whole_and_in_changed_rows() -> None:
    before = a_snapshot(a_request())
    after = a_snapshot(a_request(planned=a_planned_start(60, 1, whole("n1-0"))))
    old, new = rows_of(before), rows_of(after)
    change = delta_encode(old, difference(old, new))
    assert b'"promise":{' in encode(after)
    assert b'"promise":{' in change
    assert advance(old, delta_decode(Snapshot, old, change)) == new


def test_equal_keys_of_a_plan_keep_their_order() -> None:
    rows = (DroppedPause("b", "y"), DroppedPause("a", "z"), DroppedPause("b", "x"))
    plan = Plan((), (), (), (), dropped=rows)
    assert not is_in_order(rows_of(plan)), "it is stored whole"
    ordered = replace(plan, dropped=(rows[1], rows[0], rows[2]))
    assert is_in_order(rows_of(ordered))
    assert document_of(Plan, rows_of(ordered)) == ordered


def test_a_delta_makes_the_next_document_and_its_digest(
    lived: list[list[tuple[Snapshot, Plan]]],
) -> None:
    for day in lived:
        before = rows_of(day[0][0]), rows_of(day[0][1])
        digests = RowsDigest.of(before[0]), RowsDigest.of(before[1])
        for site, plan in day[1:]:
            # The reader has it from canonical bytes, in another order than the writer.
            after = rows_of(site), rows_of(plan)
            found = _step(Snapshot, before[0], after[0]), _step(Plan, before[1], after[1])
            assert found == (rows_of(in_order(site)), after[1])
            digests = (
                digests[0].after(difference(before[0], after[0])),
                digests[1].after(difference(before[1], after[1])),
            )
            assert [each.hex() for each in digests] == [RowsDigest.of(rows).hex() for rows in found]
            before = found


def _step(kind: type[Snapshot] | type[Plan], before: Rows, after: Rows) -> Rows:
    written = delta_encode(before, difference(before, after))
    return advance(before, delta_decode(kind, before, written))


def test_the_digest_is_another_for_any_change(lived: list[list[tuple[Snapshot, Plan]]]) -> None:
    site = lived[0][1][0]
    first, *rest = site.held
    others = [
        replace(site, now=site.now + 1),
        replace(site, held=tuple(rest)),
        replace(site, held=(replace(first, ends=first.ends + 1), *rest)),
        replace(site, held=(), extensions=site.extensions),
        replace(site, tiers=()),
    ]
    sums = {RowsDigest.of(rows_of(each)).hex() for each in (site, *others)}
    assert len(sums) == 1 + len(others)


def test_what_moves_with_the_clock_is_not_a_change() -> None:
    site = crowded()
    wait, goes_on = site.requests[0], site.requests[1]
    place = site.held[0].place
    running = replace(goes_on, earliest=site.now, duration=DAY, home=(place,), home_wait=70)
    paused = replace(wait, earliest=site.now, paused=True)
    early = replace(site, requests=(paused,), running=(running,))
    later = replace(
        early,
        now=site.now + 60,
        requests=(replace(paused, earliest=site.now + 60),),
        running=(replace(running, earliest=site.now + 60, duration=DAY - 60, home_wait=130),),
    )
    delta = difference(rows_of(early), rows_of(later))
    assert not delta
    assert encode(document_of(Snapshot, advance(rows_of(early), delta))) == encode(later)
