"""What each error of a GPU does to the work on it."""

import pytest

from allocation.rules.nodes.health import ECCS, RECOVERIES, UNKNOWN, XIDS, Action, finding_of
from allocation.words.fleet import SENTENCES

TABLE = {
    48: Action.GPU,
    62: Action.GPU,
    63: Action.FINISH,
    64: Action.GPU,
    74: Action.GPU,
    79: Action.LOST,
    92: Action.FINISH,
    94: Action.INSTANCE,
    95: Action.GPU,
    **dict.fromkeys((119, 120, 140, 143, *range(145, 151)), Action.GPU),
    154: Action.NODE,
}


@pytest.mark.parametrize(("xid", "action"), TABLE.items())
def test_each_xid_of_the_table_has_its_action(xid: int, action: Action) -> None:
    assert finding_of("xid", xid).action is action


def test_no_xid_is_in_the_table_without_a_test() -> None:
    assert set(XIDS) == set(TABLE)


@pytest.mark.parametrize(
    ("kind", "code"), [("xid", 13), ("xid", 31), ("xid", 0), ("ecc", 1), ("ecc", 9), ("fan", 79)]
)
def test_what_is_not_in_the_table_is_noted_and_changes_nothing(kind: str, code: int) -> None:
    assert finding_of(kind, code).action is Action.NOTE


@pytest.mark.parametrize(
    ("recovery", "action"),
    [
        ("none", Action.NOTE),
        ("reset", Action.GPU),
        ("drain", Action.FINISH),
        ("reboot", Action.NODE),
        (None, Action.NODE),
    ],
)
def test_xid_154_reaches_as_far_as_what_the_driver_asks_for(recovery: str | None, action: Action) -> None:
    assert finding_of("xid", 154, recovery).action is action
    # It says so with no other error.
    assert finding_of("xid", 63, recovery).action is Action.FINISH


def test_a_memory_error_of_two_bits_lets_work_finish() -> None:
    assert finding_of("ecc", 2).action is Action.FINISH


def test_each_effect_has_a_sentence() -> None:
    found = [UNKNOWN, *XIDS.values(), *RECOVERIES.values(), *ECCS.values()]
    assert {each.cause for each in found} <= SENTENCES.keys()
