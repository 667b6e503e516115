"""The sentences of events, refusals and quotes: stored as codes and facts, and never missing."""

import ast
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.template.loader import render_to_string
from django.utils.formats import date_format

from allocation.models import Booking, BookingEvent
from allocation.services.record.history import Event
from allocation.words import events, quotes, refusals
from allocation.words.events import event_text
from allocation.words.reasons import reason_data
from solver.reasons.reason import reason
from tests.builders_allocation import NOW

SERVICES = Path(__file__).resolve().parents[2] / "allocation"
CATALOGUES: dict[str, Mapping[str, object]] = {
    "event_text": events._SENTENCES,
    "refusal_text": refusals._SENTENCES,
    "note_text": quotes._NOTES,
}


def _calls() -> Iterator[tuple[str, ast.Call]]:
    for path in SERVICES.glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield node.func.id, node


def test_every_code_that_is_used_has_a_sentence_with_facts_that_are_given() -> None:
    seen = 0
    for name, call in _calls():
        code = call.args[0] if name in CATALOGUES and call.args else None
        if not (isinstance(code, ast.Constant) and isinstance(code.value, str)):
            continue
        text = CATALOGUES[name][code.value]
        given = {keyword.arg for keyword in call.keywords}
        if None not in given and not callable(text):
            needed = set(re.findall(r"%\((\w+?)(?:_gpus|_grouped)?\)s", str(text)))
            assert needed <= given, ast.unparse(call)
        seen += 1
    assert seen > 70


def test_an_event_keeps_its_facts_and_an_older_one_its_sentence() -> None:
    booking = Booking(tenant_id=uuid4(), state="queued")
    because = reason_data(reason("not_before"))
    text = event_text("place_withdrawn", cause=event_text("node_off", node="n1"))
    row = Event("moved", text, detail={"rule": "R62"}).row(booking, NOW)
    assert row.sentence == "n1 was switched off. Other GPUs are being found."
    assert row.detail["rule"] == "R62"
    assert row.detail["text"] == {
        "code": "place_withdrawn",
        "facts": {"cause": {"code": "node_off", "facts": {"node": "n1"}}},
    }
    queued = Event("queued", event_text("queued", because=because)).row(booking, NOW)
    assert row.text == "n1 was switched off. Other GPUs are being found."
    assert queued.text.endswith(" You asked for a start no earlier than this.")
    assert BookingEvent(sentence="As it was.", detail={}).text == "As it was."


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ("place_kept", "Kept until"),
        ("offered", "Answer by"),
        ("pause_noticed", "Paused at"),
        ("more_time", "Paused at"),
        ("no_show_warned", "Check in by"),
        ("leave_by", "Leave by"),
        ("change_waits", "Tried until"),
        ("ends_soon", "End"),
        ("pause_withdrawn", "End"),
    ],
)
def test_the_second_time_of_an_event_is_an_end_only_if_the_booking_ends_then(kind: str, label: str) -> None:
    booking = Booking(tenant_id=uuid4(), state="queued")
    until = NOW + timedelta(hours=2)
    row = Event(
        kind,
        event_text("cleared", charged="1", freed="2"),
        detail={
            "starts": (NOW + timedelta(days=1)).isoformat(),
            "until": until.isoformat(),
        },
    ).row(booking, NOW)
    page = render_to_string(
        "allocation/booking/history.html",
        {"events": [row], "zone": {}, "tenant": {"slug": "helix"}},
    )
    assert f"{label}: {date_format(until, 'j M H:i')}" in re.sub(r"\s+", " ", page)
