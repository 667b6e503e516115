"""Versions in force for some GPU classes or organisations: the solver decides with them there alone."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db import ProgrammingError, transaction

from allocation.features.policy_lab.models import PolicyShadowDifference, PolicyTrial, PolicyTrialPart
from allocation.features.policy_lab.plays.past import Outcome
from allocation.models import PolicyActivation, PolicyVersion
from allocation.queries.decisions.policy_versions import version_read
from allocation.services.decide.cycle import tick_run
from allocation.services.policy.activations import policy_activate, policy_rollback
from allocation.services.policy.differences import version_lines
from allocation.services.policy.parts import Part, part_of
from allocation.services.policy.policies import policy_draft, policy_of
from solver import Policy, decode, encode
from solver.model.policy import PolicyPart
from tenants.models import AuditEntry
from tenants.platform.errors import Refused
from tests.api.builders import Site, a_site, said
from tests.builders import a_gpu_class
from tests.features.policy_lab.test_play import history_of, outcomes
from tests.roles import as_role, as_system

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)
DAY = 86_400
BASE = Policy(1)
OTHER = replace(
    Policy(2),
    patience=600,
    age_step=1_800,
    share_step=50_000,
    cool_down=7_200,
    victim_rules=(),
    long_run_weight=1,
)


def with_part(policy: Policy, classes: tuple[str, ...] = (), tenants: tuple[str, ...] = ()) -> Policy:
    """The base, with another policy in force in a part."""
    row = {"classes": classes, "tenants": tenants}
    return replace(BASE, parts=(part_of(row, policy),))


def same(one: Outcome, other: Outcome) -> bool:
    return (one.fates, one.used) == (other.fates, other.used)


@pytest.mark.turn
@pytest.mark.parametrize("seed", range(12))
def test_a_part_of_all_classes_is_the_whole_policy(seed: int) -> None:
    history = history_of(seed)
    classes = tuple({gpu.gpu_class for gpu in history.site.gpus})
    whole = outcomes(history, OTHER)
    assert same(outcomes(history, with_part(OTHER, classes)), whole)
    assert same(outcomes(history, with_part(BASE, classes)), outcomes(history, BASE))
    assert same(outcomes(history, with_part(OTHER, ("none",))), outcomes(history, BASE))


def test_some_world_tells_a_part_from_the_whole() -> None:
    """The property above would hold for a solver that knows no parts."""
    histories = map(history_of, range(12))
    assert any(not same(outcomes(each, OTHER), outcomes(each, BASE)) for each in histories)


def test_an_organisation_alone_is_spared_from_pauses() -> None:
    spared = replace(BASE, victim_rules=())
    for seed in range(12):
        history = history_of(seed)
        paused = outcomes(history, BASE)
        tenants = {each.request.booking: each.request.tenant for each in history.past}
        of = {tenants[name] for name, fate in paused.fates.items() if fate.pauses}
        if of:
            one = min(of)
            found = outcomes(history, with_part(spared, tenants=(one,)))
            assert not any(fate.pauses for name, fate in found.fates.items() if tenants[name] == one)
            return
    pytest.fail("no world pauses anybody")


def test_parts_are_in_the_bytes_and_a_policy_without_has_none() -> None:
    policy = with_part(OTHER, ("h100",), ("a",))
    assert decode(Policy, encode(policy)) == policy
    assert b"parts" not in encode(BASE)
    assert policy.of("h100", "a").patience == OTHER.patience
    assert policy.of("h100", "b") is policy.of("a100", "a") is policy
    assert isinstance(policy.of("h100", "a"), PolicyPart)


@pytest.fixture
def site(db: None) -> Site:
    return a_site()


def drafted(**document: object) -> int:
    with as_system():
        a_gpu_class("a100")
        return policy_draft(document=document or {"patience": 600}, now=NOW).number


def activated(site: Site, number: int, now: datetime = NOW, **part: object) -> PolicyActivation:
    by = site.people["operator"].pk
    with as_role("portal_ops"):
        return policy_activate(number=number, now=now, operator_id=by, **part)  # type: ignore[arg-type]


def live() -> PolicyVersion:
    with as_system():
        return PolicyVersion.objects.get(state="live")


def state(number: int) -> tuple[str, object]:
    with as_system():
        facts = version_read(number)
    assert facts is not None
    return facts.state, facts.part and (facts.part["classes"], len(facts.part["tenants"]))


@pytest.mark.django_db
def test_a_version_is_in_force_for_a_class_is_widened_and_goes_back(site: Site) -> None:
    number = drafted(patience=600)
    made = activated(site, number, classes=["h100"])
    assert made.in_force_id == live().number != number
    assert state(number) == ("partial", (["h100"], 0))
    policy = policy_of(live())
    assert (policy.of("h100").patience, policy.of("a100").patience) == (600, BASE.patience)
    activated(site, number, NOW + timedelta(hours=1), classes=["h100", "a100"])
    assert state(number) == ("partial", (["a100", "h100"], 0))
    with as_role("portal_ops"):
        policy_rollback(now=NOW + timedelta(hours=2), operator_id=None, reason="Too fast.")
    assert state(number) == ("partial", (["h100"], 0))
    with as_role("portal_ops"):
        policy_rollback(now=NOW + timedelta(hours=3), operator_id=None, reason="Still.", number=1)
    assert live().number == 1
    assert state(number)[1] is None
    activated(site, number, NOW + timedelta(hours=4), classes=["h100"])
    activated(site, number, NOW + timedelta(hours=5))
    assert (live().number, live().parts, state(number)) == (number, [], ("live", None))
    with as_system():
        entries = AuditEntry.objects.filter(tenant=None, action="policy.published").order_by("id")
        assert entries[0].detail["after"]["for"] == "h100"


@pytest.mark.django_db
def test_a_part_begins_at_its_time_and_is_said_in_words(site: Site) -> None:
    number, slug = drafted(cool_down=3_600), site.project.tenant.slug
    starts = NOW + timedelta(hours=1)
    before = live()
    activated(site, number, classes=["h100"], tenants=[slug], starts=starts)
    with as_system():
        tick_run(starts)
    (row,) = live().parts
    assert row["values"] == {"cool_down": 3_600}
    with as_system():
        assert version_lines(before, live()) == [
            f"In h100 of {slug}, as version {number}: Cool-down after a pause: 30m to 1h"
        ]


@pytest.mark.django_db
def test_what_has_one_value_for_all_is_refused_for_a_part_by_its_name(site: Site) -> None:
    number, slug = drafted(grid=600, patience=600), site.project.tenant.slug
    with pytest.raises(Refused, match="not_for_a_part") as found:
        activated(site, number, classes=["h100"])
    assert "Start time step" in found.value.sentence
    assert "Longest wait" not in found.value.sentence.partition("may differ")[0]
    other = drafted(age_step=3_600)
    with pytest.raises(Refused, match="not_for_a_part"):
        activated(site, other, tenants=[slug])
    activated(site, other, classes=["h100"])
    assert state(other)[0] == "partial"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("part", "code"),
    [
        ({"classes": ["h9"]}, "unknown_class"),
        ({"tenants": ["nobody"]}, "unknown_tenant"),
        ({"classes": ["h100"], "all": True}, "unknown_field"),
    ],
)
def test_a_part_that_nobody_knows_is_refused(site: Site, part: dict[str, object], code: str) -> None:
    number = drafted()
    answer = site.operator.post(f"policy/versions/{number}/activate", part)
    assert answer.status_code in (400, 422)
    assert code in answer.content.decode()


@pytest.mark.django_db
def test_two_versions_are_in_force_for_parts_that_do_not_meet(site: Site) -> None:
    one, two = drafted(patience=600), drafted(patience=900)
    activated(site, one, classes=["h100"])
    with pytest.raises(Refused, match="parts_overlap"):
        activated(site, two, tenants=[site.project.tenant.slug])
    with pytest.raises(Refused, match="no_change"):
        activated(site, one, classes=["h100"])
    activated(site, two, classes=["a100"])
    assert (state(one)[0], state(two)[0]) == ("partial", "partial")
    with pytest.raises(Refused, match="not_for_a_part"):
        activated(site, live().number, classes=["h100"])
    shown = said(site.operator.get(f"policy/versions/{two}"))
    assert shown["part"]["classes"] == ["a100"]
    assert len(said(site.operator.get("policy"))["parts"]) == 2


@pytest.mark.django_db
def test_no_organisation_sees_what_another_one_would_get(site: Site) -> None:
    number = drafted(patience=600)
    of_version = f"policy/versions/{number}"
    for person in (site.admin, site.researcher):
        for address in ("policy", "policy/trials", of_version, f"{of_version}/shadow"):
            assert person.get(address).status_code == 403
        assert person.post("policy/trials", {"candidate": number}).status_code == 403
    for table in (PolicyTrial, PolicyTrialPart, PolicyShadowDifference, PolicyActivation):
        denied = pytest.raises(ProgrammingError, match="permission denied")
        with as_role("portal_web"), denied, transaction.atomic():
            table.objects.count()


def test_an_empty_part_is_the_whole_site() -> None:
    assert not Part()
    assert Part(("h100",))
