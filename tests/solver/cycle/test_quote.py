"""Quotes: what a request gets before anybody books."""

from dataclasses import replace

from solver import Ask, Availability, Option, Policy, Quote, QuoteRequest, quote
from solver.model.inputs import Gpu, Held
from tests.solver.builders import (
    DAY,
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_limit,
    a_planned_start,
    a_request,
    a_snapshot,
    an_ask,
    gpus,
    whole,
)

SITE = gpus(4) + gpus(4, "l40s", "l40s", node="n2", domains=None)
RATES = {"h100": 300, "l40s": 100}


def a_question(
    ask: Ask | None = None,
    *,
    hours: float = 2,
    earliest: int = 0,
    latest: int | None = None,
    fixed: bool = False,
    rates: dict[str, int] | None = None,
) -> QuoteRequest:
    """One H100 for two hours as soon as possible."""
    return QuoteRequest(
        ask=ask or an_ask(),
        duration=int(hours * HOUR),
        earliest=NOON + earliest,
        latest=None if latest is None else NOON + latest,
        fixed=fixed,
        tenant="lab",
        project="folding",
        rates=RATES if rates is None else rates,
    )


def offered(answer: Quote) -> list[tuple[str, str, str | None, int]]:
    """Kind, class, slice, start from noon."""
    return [(o.kind, o.gpu_class, o.profile, o.starts - NOON) for o in answer.options]


def ask_of(question: QuoteRequest, *held: Held, fleet: tuple[Gpu, ...] = SITE) -> Quote:
    """A quote on a site where this much is taken."""
    return quote(a_snapshot(fleet=fleet, held=held), POLICY, question)


def all_busy(ends: int = HOUR) -> tuple[Held, ...]:
    """Every H100 runs something."""
    return tuple(a_held(f"n1-{index}", ends=ends) for index in range(4))


def test_as_asked_comes_first_then_what_is_cheaper() -> None:
    answer = ask_of(a_question())
    assert answer.blocked is None
    assert offered(answer) == [
        ("as_asked", "h100", None, 0),
        ("other_class", "l40s", None, 0),
        ("slice", "h100", "3g.40gb", 0),
        ("slice", "h100", "4g.40gb", 0),
    ]
    assert answer.options[0].places_hint == ("n1",)


def test_a_busy_site_offers_the_wait_and_what_can_be_had_at_once() -> None:
    answer = ask_of(a_question(), *all_busy())
    assert offered(answer) == [("as_asked", "h100", None, HOUR), ("other_class", "l40s", None, 0)]


def test_what_is_later_and_no_cheaper_is_not_shown() -> None:
    busy = tuple(a_held(f"n2-{index}") for index in range(4))
    dear = ask_of(a_question(rates={"h100": 100, "l40s": 300}), *busy)
    assert all(option.gpu_class != "l40s" for option in dear.options)
    cheap = ask_of(a_question(rates={"h100": 300, "l40s": 10}), *busy)
    assert ("other_class", "l40s", None, HOUR) in offered(cheap)


def test_weights_compare_price_times_units_times_time() -> None:
    option = ask_of(a_question(an_ask(2))).options[0]
    assert (option.units, option.weight) == (112_000, 300 * 112_000 * 2 * HOUR)


def test_a_busy_fixed_window_is_blocked_and_the_next_free_one_offered() -> None:
    answer = ask_of(a_question(fixed=True, earliest=600), *all_busy())
    assert answer.blocked is not None
    assert (answer.blocked.code, answer.blocked.frees_at) == ("gpus_busy", NOON + HOUR)
    assert offered(answer)[0] == ("later", "h100", None, HOUR)
    assert ("other_class", "l40s", None, 600) in offered(answer)


def test_a_free_fixed_window_is_given_to_the_second() -> None:
    assert offered(ask_of(a_question(fixed=True, earliest=617)))[0] == (
        "as_asked",
        "h100",
        None,
        617,
    )


def test_a_fixed_window_in_the_past_or_beyond_the_horizon_has_no_option() -> None:
    past = ask_of(a_question(fixed=True, earliest=-60))
    assert past.blocked is not None
    assert past.blocked.code == "window_past"
    for fixed in (True, False):
        far = ask_of(a_question(earliest=29 * DAY, fixed=fixed))
        assert far.blocked is not None
        assert (far.blocked.code, far.options) == ("advance_window", ())


def test_no_room_as_far_ahead_as_bookings_go_names_what_is_in_the_way() -> None:
    answer = ask_of(a_question(), *all_busy(ends=40 * DAY), fleet=gpus(4))
    assert answer.blocked is not None
    assert (answer.blocked.code, answer.options) == ("gpus_busy", ())


def test_a_deadline_that_cannot_be_met_is_the_one_reason_and_later_the_nearest_thing() -> None:
    answer = ask_of(a_question(latest=2 * HOUR + 60), *all_busy())
    assert answer.blocked is not None
    assert answer.blocked.code == "deadline_unreachable"
    assert offered(answer)[0] == ("later", "h100", None, HOUR)


def test_what_never_fits_together_is_offered_split() -> None:
    ask = an_ask(4, together="domain", required=True)
    answer = ask_of(a_question(ask), fleet=gpus(4, domains=2))
    assert answer.blocked is not None
    assert answer.blocked.code == "impossible_together"
    assert offered(answer)[0] == ("without_nvlink", "h100", None, 0)


def test_an_unknown_class_is_blocked_and_has_no_options() -> None:
    answer = ask_of(a_question(an_ask(1, "b300")))
    assert answer.blocked is not None
    assert (answer.blocked.code, answer.options) == ("unknown_class", ())


def test_the_limit_of_the_project_holds_for_every_option() -> None:
    site = a_snapshot(fleet=SITE, limits=(a_limit("folding", 0.5),))
    answer = quote(site, POLICY, a_question())
    assert answer.blocked is not None
    assert answer.blocked.code == "project_quota"
    assert [option.profile for option in answer.options if option.gpu_class == "h100"] == ["3g.40gb"]


def test_planned_starts_of_others_are_not_offered_to_anyone() -> None:
    all_four = a_planned_start(HOUR, 4, *(whole(f"n1-{index}") for index in range(4)))
    promised = a_request("p", an_ask(4), hours=4, planned=all_four)
    site = a_snapshot(promised, fleet=gpus(4))
    assert quote(site, POLICY, a_question()).options[0].starts == NOON + 5 * HOUR
    free = replace(site, requests=())
    assert quote(free, POLICY, a_question()).options[0].starts == NOON


def test_asking_changes_nothing() -> None:
    availability = Availability(a_snapshot(fleet=SITE, held=all_busy()), Policy(1))
    question = a_question()
    first = availability.quote(question)
    other = availability.quote(a_question(an_ask(4), hours=9))
    assert availability.quote(question) == first
    assert isinstance(other.options[0], Option)
