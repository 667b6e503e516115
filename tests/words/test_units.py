"""Sentences about cores of hosts have cores where others have GPUs."""

import pytest

from allocation.words.amounts import class_names
from allocation.words.events import event_sentence, event_text
from allocation.words.reasons import sentence_for, stored_sentence
from allocation.words.refusals import refusal_text
from tenants.platform.nouns import about_cores, unit_text
from tenants.platform.words import more_text


def names() -> frozenset[str]:
    return frozenset({"cpu"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("4 more GPUs, 1 GPU-hour, 20 GPU-minutes", "4 more cores, 1 core-hour, 20 core-minutes"),
        ("A GPU of this booking. Its GPUs' owner", "A core of this booking. Its cores' owner"),
        ("Name a GPU class. 80 GB of GPU memory.", "Name a GPU class. 80 GB of GPU memory."),
    ],
)
def test_the_noun_is_replaced_and_nothing_else(text: str, said: str) -> None:
    assert unit_text(text, are_cores=True) == said
    assert unit_text(text) == text


def test_a_class_says_what_it_has() -> None:
    more = {"kind": "quota", "amount": "8"}
    with class_names(lambda: {"cpu": "CPU cores"}, cores=names):
        assert more_text({**more, "gpu_class": "cpu"}) == "8 more cores"
        assert more_text({**more, "gpu_class": "h100"}) == "8 more GPUs"
        assert more_text({"kind": "gpu_hours", "amount": "1", "gpu_class": "cpu"}) == "1 more core-hour"
        over = {"gpu_class": "cpu", "gpus": 3}
        assert "3 cores of CPU cores" in stored_sentence(
            {"code": "maintenance", "numbers": {**over, "which": "class"}, "rule": "R1"}
        )
    assert more_text({**more, "gpu_class": "cpu"}) == "8 more GPUs"


def test_what_names_no_class_is_known_by_its_booking() -> None:
    busy = {"code": "window_busy", "numbers": {}, "rule": "R1"}
    assert sentence_for({"host": True}, busy) == "Other bookings have the cores for some of that time."
    assert sentence_for({}, busy) == stored_sentence(busy)
    started = event_text("started")
    assert event_sentence(started.of_cores().data()) == (
        "Ready: the cores are handed over, and are charged from now on."
    )
    assert "GPUs" in event_sentence(started.data())


def test_a_refusal_is_about_what_is_asked_for() -> None:
    with about_cores(are_cores=True):
        assert "core" in refusal_text("no_place_yet", label="BK-1")
        with about_cores(are_cores=False):
            assert "GPUs" in refusal_text("no_place_yet", label="BK-1")
