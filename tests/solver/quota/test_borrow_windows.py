"""A tier that is never paused borrows for a bounded window: who lends waits for its end."""

from dataclasses import replace

import pytest

from solver import Availability, Extension, Held, Policy, Request, Snapshot, decode, encode, solve
from solver.model.policy import ANY_TIER
from tests.solver.builders import (
    HOUR,
    NOON,
    POLICY,
    TIERS,
    a_held,
    a_limit,
    a_request,
    a_snapshot,
    an_ask,
    gpus,
)

LENDING = Policy(1, borrow_windows=(("standard", 4 * HOUR),))
LIMITS = (a_limit("lab", 1, borrow=None), a_limit("other", 1, borrow=None))


def site(*requests: Request, held: tuple[Held, ...] = (), extensions: tuple[Extension, ...] = ()) -> Snapshot:
    """Two GPUs, one guaranteed to each of two organisations."""
    return a_snapshot(*requests, fleet=gpus(2), held=held, extensions=extensions, limits=LIMITS)


def starts(site: Snapshot, policy: Policy = LENDING) -> dict[str, int]:
    """Seconds from noon at which each booking starts."""
    plan = solve(site, policy)
    return {
        **{row.booking: row.starts - NOON for row in plan.assigns},
        **{row.booking: row.starts - NOON for row in plan.waits},
    }


def test_idle_gpus_of_others_are_borrowed_up_to_the_window() -> None:
    short, long = a_request(ask=an_ask(2), hours=4), a_request(ask=an_ask(2), hours=4.01)
    assert starts(site(short)) == {"b1": 0}
    assert [r.code for r in solve(site(long), LENDING).refusals[0].reasons] == ["guarantee_only"]
    assert not starts(site(short), POLICY)


@pytest.mark.parametrize("is_used", [False, True])
def test_what_was_paused_resumes_on_borrowed_gpus_if_its_tier_is_never_paused_since(*, is_used: bool) -> None:
    rest = replace(a_request(ask=an_ask(2), hours=9), paused=True, pauses=1)
    lender = a_held("n1-1", booking="lender", tenant="other", project="else", ends=3 * HOUR)
    assert starts(site(rest, held=(lender,) if is_used else ()), POLICY) == {"b1": 3 * HOUR * is_used}


def test_a_refusal_names_the_window_and_a_start_on_loan_says_that_it_ends() -> None:
    own = a_held("n1-0", booking="own", tenant="lab", project="folding", starts=-60, ends=HOUR)
    long = solve(site(a_request(hours=5), held=(own,)), LENDING)
    (blocked, *_) = long.waits[0].reasons
    assert (blocked.code, blocked.facts["borrow_seconds"]) == ("guarantee_only", 4 * HOUR)
    short = solve(site(a_request(hours=4), held=(own,)), LENDING)
    (borrowed,) = [r for r in short.assigns[0].reasons if r.code == "borrowed"]
    assert borrowed.facts == {"own": 0, "borrowed": 56_000, "lasts": 1}


@pytest.mark.parametrize("tier", ["standard", "flex"])
def test_who_lends_starts_at_the_end_of_the_loan_and_pauses_nobody(tier: str) -> None:
    loan = a_held("n1-1", booking="loan", tenant="lab", project="folding", ends=3 * HOUR)
    own = a_held("n1-0", booking="own", tenant="lab", project="folding", ends=8 * HOUR)
    claim = a_request("claim", tenant="other", project="else", tier=tier, hours=1)
    plan = solve(site(claim, held=(loan, own)), LENDING)
    assert [row.starts - NOON for row in plan.waits] == [3 * HOUR]
    assert not plan.pauses


def test_work_inside_a_guarantee_goes_before_a_loan_that_was_asked_for_earlier() -> None:
    own = a_held("n1-0", booking="own", tenant="lab", project="folding", ends=8 * HOUR)
    loan = a_request("loan", hours=2, submitted=0)
    claim = a_request("claim", tenant="other", project="else", hours=2, submitted=600)
    assert starts(site(loan, claim, held=(own,))) == {"claim": 0, "loan": 2 * HOUR}


@pytest.mark.parametrize(("hours", "why"), [(4, []), (4.1, ["guarantee_only"])])
def test_a_loan_is_extended_up_to_the_window_in_all(hours: float, why: list[str]) -> None:
    own = a_held("n1-0", booking="own", tenant="lab", project="folding", ends=8 * HOUR)
    loan = a_held("n1-1", booking="loan", tenant="lab", project="folding", starts=-HOUR, ends=HOUR)
    longer = Extension("loan", NOON - HOUR + int(hours * HOUR))
    site_now = site(held=(own, loan), extensions=(longer,))
    (answer,) = solve(site_now, LENDING).extensions
    assert [r.code for r in answer.reasons] == why
    blocked = Availability(replace(site_now, extensions=()), LENDING).why_not_longer("loan", longer.until)
    assert [blocked.code if blocked else ""] == (why or [""])


def test_who_lends_goes_before_a_later_end_of_the_loan() -> None:
    own = a_held("n1-0", booking="own", tenant="lab", project="folding", ends=8 * HOUR)
    loan = a_held("n1-1", booking="loan", tenant="lab", project="folding", ends=HOUR)
    more = replace(a_request("longer", earliest=HOUR, hours=1, submitted=0), fixed=True)
    claim = a_request("claim", tenant="other", project="else", hours=2, submitted=600)
    both = site(claim, held=(own, loan), extensions=(Extension("loan", NOON + 2 * HOUR, more),))
    assert starts(both) == {"claim": HOUR}
    (answer,) = solve(both, LENDING).extensions
    assert not answer.granted


def test_a_loan_is_not_extended_beyond_the_window_and_a_booking_inside_its_guarantee_is() -> None:
    own = a_held("n1-0", booking="own", tenant="lab", project="folding", ends=2 * HOUR)
    loan = a_held("n1-1", booking="loan", tenant="lab", project="folding", ends=HOUR)
    extensions = tuple(Extension(name, NOON + 5 * HOUR) for name in ("loan", "own"))
    both = solve(site(held=(own, loan), extensions=extensions[:1]), LENDING).extensions
    assert [[r.code for r in each.reasons] for each in both] == [["guarantee_only"]]
    (alone,) = solve(site(held=(own,), extensions=extensions[1:]), LENDING).extensions
    assert alone.granted


def test_what_has_to_stay_within_its_guarantee_borrows_nothing() -> None:
    own = a_held("n1-0", booking="own", tenant="lab", project="folding", ends=HOUR)
    request = replace(a_request(hours=1), within=True)
    assert starts(site(request, held=(own,))) == {"b1": HOUR}


def test_one_row_is_for_all_tiers_that_have_none_and_nobody_else_changes() -> None:
    both = Policy(1, borrow_windows=((ANY_TIER, HOUR), ("standard", 0)))
    tiers = {tier.slug: tier.borrow for tier in both.with_borrow_windows(TIERS)}
    assert tiers == {"standard": 0, "flex": 0, "spot": 0}
    alone = Policy(1, borrow_windows=((ANY_TIER, HOUR),)).with_borrow_windows(TIERS)
    assert [tier.borrow for tier in alone] == [HOUR, 0, 0]


def test_the_bytes_of_a_policy_without_windows_stay_and_windows_are_read_again() -> None:
    assert b"borrow" not in encode(POLICY)
    assert decode(Policy, encode(LENDING)) == LENDING
