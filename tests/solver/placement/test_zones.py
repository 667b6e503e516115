"""Zones and storage: no gang is in two zones, and a booking runs only where it may."""

from dataclasses import replace
from random import Random

from solver import Gpu, Plan, QuoteRequest, Request, Snapshot, Where, decode, encode, quote, solve
from tests.solver import truth
from tests.solver.builders import (
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
from tests.solver.pausing import a_claim, a_site, notices, running


def zoned(rows: tuple[Gpu, ...], zone: str, scratch: int = 0, storage: str = "") -> tuple[Gpu, ...]:
    return tuple(replace(gpu, zone=zone, scratch=scratch, storage=storage) for gpu in rows)


BASEL = zoned(gpus(2, node="n1", rack="r1"), "basel", 2_000, "local")
BERN = zoned(gpus(2, node="n2", rack="r2"), "bern", 500, "local")
NOWHERE = zoned(gpus(1, node="n3", rack="r3"), "", 0, "shared")
FLEET = BASEL + BERN + NOWHERE


def there(where: Where, count: int = 1, **more) -> Request:  # type: ignore[no-untyped-def]  # as a_request
    return a_request(ask=replace(an_ask(count), where=where), **more)


def site(*requests: Request, **more) -> Snapshot:  # type: ignore[no-untyped-def]  # as a_snapshot
    return a_snapshot(*requests, **{"fleet": FLEET, **more})


def placed(plan: Plan) -> list[str]:
    return [place.gpu for row in truth.given_by(plan) for place in row.places]


ALLOWED = (
    (Where(zones=("bern",)), {"n2"}),
    (Where(zones=("basel", "bern"), not_zones=("basel",)), {"n2"}),
    (Where(not_zones=("basel", "bern")), {"n3"}),
    (Where(scratch=1_000), {"n1"}),
    (Where(storage="shared"), {"n3"}),
)


def test_a_booking_runs_only_where_it_may() -> None:
    for where, nodes in ALLOWED:
        plan = solve(site(there(where)), POLICY)
        assert {gpu.split("-")[0] for gpu in placed(plan)} <= nodes
        assert truth.illegal(site(there(where)), plan) == []


def test_two_gpus_wait_for_one_zone_though_two_are_free_in_two() -> None:
    taken = (a_held("n1-0", ends=3 * HOUR), a_held("n2-0", ends=2 * HOUR))
    (wait,) = solve(site(a_request(ask=an_ask(2)), held=taken), POLICY).waits
    assert (wait.starts, {place.gpu for place in wait.places}) == (NOON + 2 * HOUR, {"n2-0", "n2-1"})


def test_one_gpu_of_each_class_is_in_one_zone() -> None:
    fleet = FLEET + zoned(gpus(1, "a100", "a100-40gb", node="n4", rack="r2"), "bern")
    ask = replace(an_ask(1), groups=(an_ask(1, "a100"),))
    plan = solve(site(a_request(ask=ask), fleet=fleet), POLICY)
    assert {gpu.split("-")[0] for gpu in placed(plan)} == {"n2", "n4"}


def test_groups_that_no_zone_has_together_are_refused() -> None:
    fleet = BASEL + zoned(gpus(1, "a100", "a100-40gb", node="n4", rack="r2"), "bern")
    ask = replace(an_ask(1), groups=(an_ask(1, "a100"),))
    (refuse,) = solve(site(a_request(ask=ask), fleet=fleet), POLICY).refusals
    assert [why.code for why in refuse.reasons] == ["no_zone_for_all"]


NEVER = (
    (an_ask(3), "zone_too_small", {"asked": 3, "most": 2, "gpu_class": "h100"}),
    (replace(an_ask(), where=Where(zones=("oslo",))), "where_elsewhere", {"zones": "oslo"}),
    (replace(an_ask(3), where=Where(not_zones=("bern",))), "where_too_small", {"most": 2, "asked": 3}),
)


def test_what_can_never_fit_there_is_refused_and_says_so() -> None:
    for ask, code, facts in NEVER:
        (refuse,) = solve(site(a_request(ask=ask)), POLICY).refusals
        (why,) = refuse.reasons
        assert (why.code, facts.items() <= why.facts.items()) == (code, True)


def test_who_waits_for_a_zone_reads_that_others_are_free_and_gets_an_offer_there() -> None:
    taken = (a_held("n1-0", ends=2 * HOUR), a_held("n1-1", ends=3 * HOUR))
    asked = there(Where(zones=("basel",)))
    (wait,) = solve(site(asked, held=taken), POLICY).waits
    (why,) = (why for why in wait.reasons if why.code == "free_elsewhere")
    assert (wait.starts, why.facts["zones"]) == (NOON + 2 * HOUR, "basel")
    question = QuoteRequest(asked.ask, HOUR, NOON, None, fixed=False, tenant="lab", project="folding")
    kinds = {option.kind: option.starts for option in quote(site(held=taken), POLICY, question).options}
    assert kinds["anywhere"] < kinds["as_asked"]


def test_a_planned_gang_that_a_new_zone_would_split_moves_into_one() -> None:
    before = a_planned_start(HOUR, 1, whole("n1-0"), whole("n2-0"))
    taken = (a_held("n1-1", ends=HOUR), a_held("n2-1", ends=HOUR), a_held("n3-0", ends=HOUR))
    (wait,) = solve(site(a_request(ask=an_ask(2), planned=before), held=taken), POLICY).waits
    assert len({place.gpu.split("-")[0] for place in wait.places}) == 1


def test_only_work_in_the_zone_is_paused_for_who_may_only_run_there() -> None:
    fleet = zoned(gpus(1, node="n1"), "basel") + zoned(gpus(1, node="n2"), "bern")
    claim = a_claim(ask=replace(an_ask(1), where=Where(zones=("bern",))))
    held = (*running("x", whole("n1-0")), *running("y", whole("n2-0")))
    limits = (a_limit("lab", 1), a_limit("firm", 1, borrow=None))
    plan = solve(a_site(claim, fleet=fleet, held=held, limits=limits), POLICY)
    assert set(notices(plan)) == {"y"}


def test_a_row_that_moves_for_others_stays_where_it_may_be() -> None:
    fixed = replace(
        a_held("n1-0", starts=HOUR, ends=3 * HOUR, level="any"), where=Where(zones=("basel",)), booking="x"
    )
    busy = (a_held("n1-1", starts=HOUR, ends=3 * HOUR), fixed)
    pair = a_request(ask=an_ask(2), fixed=True, earliest=HOUR, hours=1)
    plan = solve(site(pair, held=busy), POLICY)
    assert truth.moved_wrongly(site(pair, held=busy), plan, POLICY.freeze_horizon) == []
    assert {place.gpu for row in truth.given_by(plan) for place in row.places} == {"n2-0", "n2-1"}


def test_without_zones_the_bytes_are_as_before_zones_existed() -> None:
    plain = a_snapshot(a_request(ask=an_ask(2)), limits=(a_limit("lab", 8),))
    assert b"zone" not in encode(plain)
    assert b"where" not in encode(plain)
    assert decode(Snapshot, encode(site(there(Where(scratch=1))))) == decode(
        Snapshot, encode(site(there(Where(scratch=1))))
    )


def test_dense_zones_break_no_rule() -> None:
    for seed in range(40):
        chance = Random(seed)  # noqa: S311  a made-up site
        names = [gpu.id for gpu in FLEET]
        held = tuple(
            a_held(name, ends=chance.randint(1, 5) * HOUR)
            for name in chance.sample(names, chance.randint(1, 4))
        )
        wheres = (None, Where(zones=("basel",)), Where(not_zones=("bern",)), Where(scratch=500))
        requests = tuple(
            a_request(
                f"b{number}",
                replace(an_ask(chance.choice((1, 1, 2))), where=chance.choice(wheres)),
                hours=chance.choice((1, 2, 5)),
            )
            for number in range(8)
        )
        found = site(*requests, held=held)
        plan = solve(found, POLICY)
        assert (truth.torn(found, plan), truth.illegal(found, plan)) == ([], [])
        assert truth.overlaps(found, plan) == []
