"""A policy that the solver could not use is never live, and the last good one stays."""

import json
from contextlib import suppress
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation.models import PolicyVersion
from allocation.services.bookings.checks.admission_check import admission_check
from allocation.services.policy.activations import policy_publish
from allocation.services.policy.policies import (
    BY_NAME,
    LEAST,
    LISTS,
    MOST,
    NOT_SOLVERS,
    by_name_read,
    by_name_text,
    policy_of,
    policy_read,
    policy_tunables,
    tier_seconds_read,
    tier_seconds_text,
)
from solver import Policy
from solver.model.policy import VICTIM_RULES
from tenants.models import Quota
from tenants.platform.errors import Refused
from tenants.platform.reference import reference_tx
from tests.builders import UNITS_PER_GPU
from tests.builders_allocation import NOW, Lab, a_lab, an_ask
from tests.roles import as_system
from tests.servers.servers import Servers

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)
NEAR = st.dictionaries(
    st.sampled_from([*MOST, *LISTS, *BY_NAME, "grid ", "version", "Grid"]),
    st.integers(-2, 10**6)
    | st.integers(10**17, 10**20)
    | JSON
    | st.lists(st.sampled_from(VICTIM_RULES), max_size=3),
)


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    return a_lab("helix")


def live() -> PolicyVersion:
    with as_system():
        return PolicyVersion.objects.get(state="live")


def test_every_tunable_has_its_range() -> None:
    known = MOST.keys() | LISTS.keys() | BY_NAME.keys()
    assert known - NOT_SOLVERS == policy_tunables(Policy(1)).keys()
    assert policy_read(policy_tunables(Policy(1)), 1) == Policy(1)


@pytest.mark.turn
@given(JSON | NEAR)
@settings(max_examples=300)
def test_any_document_is_a_policy_or_a_sentence(document: object) -> None:
    policy = None
    with suppress(ValueError):
        policy = policy_read(document, 7)
    if policy is not None:
        assert policy.version == 7
        for name, value in policy_tunables(policy).items():
            if isinstance(value, dict):
                assert all(0 <= each <= BY_NAME[name] for each in value.values())
            elif isinstance(value, tuple):
                assert set(value) <= set(LISTS[name])
            else:
                assert LEAST.get(name, 1) <= value <= MOST[name]


@pytest.mark.parametrize(
    "document",
    [
        {"grid": 0},
        {"grid": True},
        {"grid": 2.5},
        {"gird": 300},
        {"grid": 7200, "horizon": 3600},
        {"horizon": 10**15},
        {"victim_rules": "taken_back"},
        {"victim_rules": ["taken_back", "whim"]},
        {"victim_rules": ["taken_back", "taken_back"]},
        {"order": ["tier", "part", "tenant", "project", "person"]},
        {"order": ["age", "tier", "part", "tenant", "project", "person"]},
        {"borrow_windows": 3600},
        {"borrow_windows": ["standard"]},
        {"borrow_windows": {"standard": -1}},
        {"borrow_windows": {"standard": "4h"}},
        {"borrow_windows": {"standard": True}},
        {"borrow_windows": {"standard": 29 * 86_400}},
        {"borrow_windows": {"no-such-tier": 3600}},
        {"headroom": 2},
        {"headroom": {"h100": 0.5}},
        {"headroom": {"no-such-class": 2}},
        {"class_weights": {"no-such-class": 50}},
        {"class_weights": {"h100": 10_001}},
        {"headroom_for": {"*": 3600}},
        ["grid", 300],
        None,
    ],
)
def test_what_is_refused_leaves_the_last_good_one_live(lab: Lab, document: object) -> None:
    before = live()
    with as_system(), pytest.raises(Refused, match="bad_policy"):
        policy_publish(document=document, now=NOW)
    assert live() == before


@given(st.dictionaries(st.from_regex(r"[a-z*][a-z0-9-]{0,9}", fullmatch=True), st.integers(0, 10**6)))
def test_durations_by_tier_are_read_as_they_are_shown(windows: dict[str, int]) -> None:
    if "none" not in windows:
        assert tier_seconds_read(tier_seconds_text(windows), param="borrow_windows") == windows


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9-]{0,9}", fullmatch=True), st.integers(0, 10**5)))
def test_gpus_by_class_are_read_as_they_are_shown(counts: dict[str, int]) -> None:
    if "none" not in counts:
        assert by_name_read("headroom", by_name_text("headroom", counts)) == counts


@pytest.mark.parametrize("text", ["h100", "h100 2, h100 1", "h100 two"])
def test_what_is_no_number_by_class_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        by_name_read("headroom", text)
    assert refused.value.param == "headroom"


@pytest.mark.parametrize("text", ["standard", "standard 4h, standard 2h", "standard four", ", 4h"])
def test_what_is_no_duration_by_tier_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        tier_seconds_read(text, param="borrow_windows")
    assert refused.value.param == "borrow_windows"


def test_a_request_may_borrow_for_as_long_as_the_live_policy_says(lab: Lab) -> None:
    """Also in a process that knows the quota of the organisation already."""

    with as_system():
        Quota.objects.update(guaranteed_units=UNITS_PER_GPU, borrow_limit_units=None)

    def code(hours: int) -> str:
        with reference_tx(lab.tenant.id):
            try:
                admission_check(
                    project=lab.project, tier_slug="standard", ask=an_ask(4, hours=hours), now=NOW
                )
            except Refused as refusal:
                return refusal.code
        return ""

    assert code(4) == "guarantee_only"
    with as_system():
        policy_publish(document={"borrow_windows": {"standard": 4 * 3_600}}, now=NOW)
    assert (code(4), code(5)) == ("", "guarantee_only")


def test_a_new_policy_is_live_at_once_and_the_old_one_is_kept(lab: Lab) -> None:
    before = live()
    with as_system():
        made = policy_publish(document={"grid": 600}, now=NOW)
        assert policy_of(made).grid == 600
        assert PolicyVersion.objects.get(number=before.number).state == "retired"
    assert live() == made


@pytest.mark.parametrize(
    "document",
    [
        '{"grid": "x"}',
        '{"grid": 0}',
        '{"grid": 1.5}',
        "[]",
        '{"grid": ["x"]}',
        '{"victim_rules": [1]}',
        '{"victim_rules": "taken_back"}',
        '{"victim_rules": null}',
        '{"borrow_windows": 1}',
        '{"borrow_windows": {"x": -1}}',
        '{"borrow_windows": {"x": 0.5}}',
        '{"headroom": {"x": 0.5}}',
        '{"headroom_for": 1}',
        '{"class_weights": {"x": 0.5}}',
        '{"slice_ahead": 1}',
    ],
)
def test_the_database_itself_takes_nothing_else(lab: Lab, document: str) -> None:
    with as_system(), pytest.raises(IntegrityError, match="policy_of_whole_numbers"):
        PolicyVersion.objects.create(number=99, document=json.loads(document), state="draft", created=NOW)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_the_database_takes_each_parameter_that_has_values_by_name(lab: Lab, name: str) -> None:
    with as_system():
        PolicyVersion.objects.create(number=99, document={name: {"x": 1}}, state="draft", created=NOW)


def test_the_command_shows_changes_and_refuses(lab: Lab) -> None:
    said = StringIO()
    with as_system():
        call_command("policy", "grid=600", stdout=said)
        assert "  grid = 600\n" in said.getvalue()
        assert "  cool_down = 1800  (default)\n" in said.getvalue()
        with pytest.raises(CommandError, match=r"grid must be a whole number .* Version \d+ stays"):
            call_command("policy", "grid=soon", stdout=said)
        versions = PolicyVersion.objects.count()
        call_command("policy", "grid=600", stdout=said)
        assert PolicyVersion.objects.count() == versions
        call_command("policy", "grid=", stdout=said)
    assert "  grid = 300  (default)\n" in said.getvalue()
    assert live().document == {}
