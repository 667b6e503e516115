"""The structured ask: strict both ways."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import strategies as st

from allocation.errors import AskError
from allocation.rules.ask import AskDocument
from tests.rings import holds_for

FULL: dict[str, Any] = {
    "count": 2,
    "classes": ["h100"],
    "profile": None,
    "together": "domain",
    "required": True,
    "duration": 21600,
    "starts": None,
    "not_before": None,
    "deadline": None,
    "share": None,
    "cores": 0,
    "memory": 0,
    "workload": None,
}


def test_the_canonical_form_survives_the_way_there_and_back() -> None:
    assert AskDocument.from_json(FULL).to_json() == FULL


def test_times_come_back_in_utc() -> None:
    document = AskDocument.from_json(FULL | {"starts": "2026-11-24T09:00:00+01:00"})
    assert document.starts == datetime(2026, 11, 24, 8, tzinfo=UTC)
    assert document.to_json()["starts"] == "2026-11-24T08:00:00Z"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("PT6H", 21_600), ("P1DT12H", 129_600), ("PT90M", 5_400), ("P1W", 604_800), ("PT60S", 60)],
)
def test_a_duration_may_be_iso_8601(text: str, seconds: int) -> None:
    assert AskDocument.from_json(FULL | {"duration": text}).duration == seconds


REFUSED: dict[str, tuple[str, Any, str]] = {
    "a share of several GPUs": ("share", 250, "share_of_one"),
    "a share that is the whole": ("share", 1_000, "share_out_of_bounds"),
    "a share of nothing": ("share", 0, "share_out_of_bounds"),
    "a share with a fraction": ("share", 0.5, "not_a_whole_number"),
    "cores below none": ("cores", -1, "out_of_bounds"),
    "more memory than any node has": ("memory", 10**6, "out_of_bounds"),
    "a count that is a truth value": ("count", True, "not_a_whole_number"),
    "a count that is text": ("count", "2", "not_a_whole_number"),
    "a count with a fraction": ("count", 1.5, "not_a_whole_number"),
    "a whole count written with a fraction": ("count", 2.0, "not_a_whole_number"),
    "a count beyond the bound": ("count", 10**6, "count_out_of_bounds"),
    "no GPUs": ("count", 0, "count_out_of_bounds"),
    "less than none": ("count", -1, "count_out_of_bounds"),
    "no count": ("count", None, "not_a_whole_number"),
    "a class that is not a list": ("classes", "h100", "not_a_list"),
    "no class": ("classes", [], "not_a_list"),
    "a class twice": ("classes", ["h100", "h100"], "class_twice"),
    "a class that is a number": ("classes", [1], "not_a_name"),
    "a class with a null byte": ("classes", ["h\x00"], "not_a_name"),
    "a profile that is empty": ("profile", "", "not_a_name"),
    "a nearness that nobody knows": ("together", "planet", "not_a_choice"),
    "a nearness that cannot be looked up": ("together", ["node"], "not_a_choice"),
    "a condition that is a number": ("required", 1, "not_true_or_false"),
    "a duration that is a truth value": ("duration", True, "not_a_whole_number"),
    "a duration under a minute": ("duration", 59, "duration_out_of_bounds"),
    "a duration over 90 days": ("duration", "P91D", "duration_out_of_bounds"),
    "a duration in months": ("duration", "P1M", "not_a_duration"),
    "an empty duration": ("duration", "PT", "not_a_duration"),
    "a time without an offset": ("starts", "2026-11-24T09:00:00", "not_a_time"),
    "a time with a fraction": ("starts", "2026-11-24T09:00:00.5Z", "not_a_time"),
    "a day that does not exist": ("deadline", "2026-02-30T09:00:00Z", "not_a_time"),
    "a time as a number": ("not_before", 1_800_000_000, "not_a_time"),
    "a time before time": ("not_before", "0001-01-01T00:00:00+14:00", "time_out_of_bounds"),
    "an offset beyond a day": ("not_before", "2026-01-01T00:00:00+99:99", "not_a_time"),
    "a field that an ask does not have": ("gpus", 2, "unknown_field"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_is_refused_with_its_field(what: str) -> None:
    name, value, code = REFUSED[what]
    with pytest.raises(AskError) as refused:
        AskDocument.from_json(FULL | {name: value})
    assert (refused.value.code, refused.value.param) == (code, name)


@pytest.mark.parametrize("name", ["classes", "duration"])
def test_what_has_no_default_must_be_there(name: str) -> None:
    with pytest.raises(AskError) as refused:
        AskDocument.from_json({key: value for key, value in FULL.items() if key != name})
    assert (refused.value.code, refused.value.param) == ("missing_field", name)


def test_a_window_is_fixed_or_flexible_not_both() -> None:
    both = FULL | {"starts": "2026-11-24T09:00:00Z", "deadline": "2026-11-25T09:00:00Z"}
    with pytest.raises(AskError, match="window_twice"):
        AskDocument.from_json(both)


def test_a_deadline_must_leave_the_time_it_takes() -> None:
    tight = {"not_before": "2026-11-24T09:00:00Z", "deadline": "2026-11-24T14:59:59Z"}
    with pytest.raises(AskError, match="deadline_unreachable"):
        AskDocument.from_json(FULL | tight)
    exact = tight | {"deadline": "2026-11-24T15:00:00Z"}
    assert AskDocument.from_json(FULL | exact).deadline is not None


@holds_for(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*FULL, "x"]), inner, max_size=5)
        ),
        max_leaves=8,
    ),
    few=150,
    many=3_000,
)
def test_any_json_is_read_or_refused(data: object) -> None:
    try:
        document = AskDocument.from_json(data)
    except AskError:
        return
    assert AskDocument.from_json(document.to_json()) == document
