"""What a hook may answer: read strictly."""

from datetime import UTC, datetime

import pytest

from tenants.rules.policy_hooks import BadAnswer, Decision, decisions_read


def read(text: str, count: int = 1) -> tuple[Decision, ...]:
    return decisions_read(text.encode(), count)


def test_valid_answers() -> None:
    assert read('{"decision": "admit"}', 3) == (Decision(is_admitted=True),) * 3
    window = '{"not_before": "2026-12-01T09:00:00+01:00", "deadline": null}'
    text = '{"decision": "admit", "tier": "spot", "message": " Cheaper. ", "window": %s}'
    assert read(text % window) == (
        Decision(
            is_admitted=True,
            message="Cheaper.",
            tier="spot",
            not_before=datetime(2026, 12, 1, 8, tzinfo=UTC),
        ),
    )
    two = '{"decisions": [{"decision": "admit"}, {"decision": "deny", "message": "No."}]}'
    assert [each.is_admitted for each in read(two, 2)] == [True, False]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html>",
        "[]",
        "null",
        "{}",
        '{"decision": "Admit"}',
        '{"decision": true}',
        '{"decision": "deny"}',
        '{"decision": "deny", "message": " "}',
        '{"decision": "deny", "message": "No.", "tier": "spot"}',
        '{"decision": "admit", "decision": "deny"}',
        '{"decision": "admit", "colour": 1}',
        '{"decision": "admit", "message": "a\\u202eb"}',
        '{"decision": "admit", "tier": 7}',
        '{"decision": "admit", "message": "%s"}' % ("x" * 301),
        '{"decision": "admit", "window": {}}',
        '{"decision": "admit", "window": {"starts": 1}}',
        '{"decision": "admit", "window": {"deadline": "2026-12-01T09:00:00"}}',
        '{"decision": "admit", "window": {"deadline": "2026-13-01T09:00:00Z"}}',
        '{"decision": "admit", "window": {"deadline": "0001-01-01T00:00:00+14:00"}}',
        '{"decision": "admit", "window": {"not_before": "9999-12-31T23:59:59Z"}}',
        '{"decision": "admit", "window": {"deadline": "1999-12-31T23:59:59Z"}}',
        '{"decision": "admit", "message": NaN}',
        "[" * 100_000,
        '"\\ud800"',
        "1" * 5_000,
        '{"decisions": []}',
        '{"decisions": [{"decision": "admit"}], "decision": "admit"}',
        '{"decisions": ["admit"]}',
        '{"decisions": {"decision": "admit"}}',
    ],
)
def test_anything_else_is_no_answer(text: str) -> None:
    with pytest.raises(BadAnswer):
        read(text)


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(BadAnswer):
        decisions_read(b"\xff\xfe", 1)
