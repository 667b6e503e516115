"""What a plan offers instead of a booking, as the line and the request that book it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from allocation.models import Booking
from allocation.rules.ask import AskDocument
from allocation.services.bookings.remedy_lines import as_requests
from allocation.services.plans.changes import alternatives_data
from solver import Alternative
from tests.rules.ask_corpus import ZONE, read

STARTS = datetime(2026, 11, 20, 14, tzinfo=UTC)
WINDOW: dict[str, Any] = {"gpu_class": "a100", "profile": None, "count": 2}
ASKED = {
    "a gang on one node": {"count": 4, "classes": ["h100"], "together": "node", "required": True},
    "cores and data": {"count": 1, "classes": ["h100"], "cores": 8, "memory": 64, "data": ["coco"]},
    "a deadline": {"count": 1, "classes": ["h100"], "deadline": "2026-11-30T12:00:00Z"},
    "a pin": {"count": 1, "classes": ["h100"], "pin": ["n0003"]},
}


@pytest.mark.parametrize("case", ASKED)
def test_what_a_plan_offers_can_be_sent_as_it_is(case: str) -> None:
    ask = AskDocument.from_json({"duration": 7_200, **ASKED[case]})
    booking = Booking(ask=ask.to_json(), zone=ZONE.key, tier_id="standard")
    (offered,) = as_requests(booking, alternatives_data((_alternative(),)))
    other = AskDocument.from_json(offered["ask"])
    assert (other.count, other.classes, other.starts, other.duration) == (2, ("a100",), STARTS, 3_600)
    assert (other.together, other.required) == (ask.together, ask.required)
    assert (other.deadline, other.pin, other.cores, other.data) == (None, (), ask.cores, ask.data)
    parsed = read(offered["request"])
    assert (parsed.problems, parsed.tier) == ((), "standard")
    assert parsed.document() == other


def test_an_offer_with_gpus_apart_says_so() -> None:
    ask = AskDocument.from_json({"duration": 7_200, **ASKED["a gang on one node"]})
    booking = Booking(ask=ask.to_json(), zone="UTC", tier_id="spot")
    (offered,) = as_requests(booking, alternatives_data((_alternative(level="any"),)))
    assert (offered["ask"]["together"], offered["ask"]["required"]) == ("any", False)
    assert offered["request"] == "2 a100 1h at 2026-11-20 14:00 spot"


def _alternative(**more: Any) -> Alternative:  # noqa: ANN401 (fields of it)
    starts, ends = (int(each.timestamp()) for each in (STARTS, STARTS + timedelta(hours=1)))
    return Alternative(starts=starts, ends=ends, **WINDOW, **more)
