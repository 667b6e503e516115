"""Every reason has a sentence, which is counted in the plural."""

import pytest

from allocation.words.amounts import class_names
from allocation.words.changes import differences_text
from allocation.words.events import event_sentence
from allocation.words.queue import change_text
from allocation.words.reasons import reason_shown, sentence, stored_sentence
from allocation.words.refusals import refusal_text
from solver.reasons.catalogue import BY_CODE
from solver.reasons.reason import Fact, reason
from tenants.platform.nouns import Plural, plural

GPU = 56_000
QUOTA: dict[str, Fact] = {"owner": "lab", "limit": 8 * GPU, "asked": 2 * GPU, "gpu_class": "h100"}
SAID: tuple[tuple[str, dict[str, Fact], str], ...] = (
    ("unknown_class", {}, "No GPU class was named."),
    (
        "gpus_busy",
        {"left": 1, "asked": 2, "gpu_class": "h100", "level": "any", "planned": 1},
        "1 h100 is free for that long; 2 are needed.",
    ),
    (
        "gpus_busy",
        {"left": 0, "asked": 2, "gpu_class": "h100", "level": "any"},
        "Running and scheduled bookings leave 0 h100 for that long; 2 are needed.",
    ),
    (
        "gpus_busy",
        {"left": 2, "asked": 3, "gpu_class": "h100", "level": "any", "planned": 1, "profile": "1g.10gb"},
        "2 × 1g.10gb on h100 are free for that long; 3 are needed.",
    ),
    (
        "gpus_busy",
        {"left": 0, "asked": 1, "gpu_class": "h100", "level": "any", "planned": 1, "share": 250},
        "0 shares of 0.25 h100 are free for that long; 1 is needed.",
    ),
    (
        "gpus_busy",
        {"left": 1, "asked": 2, "gpu_class": "h100", "level": "domain", "profile": "1g.10gb"},
        "No NVLink domain has 2 × 1g.10gb on h100 free for that long.",
    ),
    (
        "line",
        {"ahead": 1, "ahead_units": GPU // 2, "position": 2, "gpu_class": "h100"},
        "Ahead in the queue for h100: 1 booking, 0.5 GPUs.",
    ),
    ("tenant_quota", QUOTA, "Your organisation may use 8 h100 at once; this needs 2."),
    (
        "project_quota",
        QUOTA | {"limit": 0, "used": 0, "dated": 1},
        "A limit at some times: your project may use 0 h100 in a part of this window; 0 in use or "
        "booked then, and this needs 2.",
    ),
    (
        "person_quota",
        {"limit": GPU, "asked": 2 * GPU, "used": 0, "gpu_class": "h100", "whose": "tenant", "dated": 1},
        "A limit at some times: its owner may use 1 h100 in your organisation in a part of this "
        "window; 0 in use or booked then, and this needs 2.",
    ),
    (
        "quota_cut",
        QUOTA | {"because": "project_quota", "used": 7 * GPU},
        "A limit is lower than when the start was planned. "
        "Your project has 7 of 8 h100 in use or booked; this needs 2 more.",
    ),
    (
        "gpu_hours",
        {"owner": "lab", "limit": 2000, "used": 10, "asked": 1, "whose": "tenant", "days": 7},
        "Your organisation may have 2,000 GPU-hours in any 7 days; 10 are used or booked, and this needs 1.",
    ),
    (
        "gpu_hours",
        {"owner": "lab", "limit": 1, "used": 0, "asked": 2, "whose": "tenant", "days": 1},
        "Your organisation may have 1 GPU-hour in any day; 0 are used or booked, and this needs 2.",
    ),
    (
        "mode_fixed",
        {"mode": "whole", "fixed": 1, "gpus": 4, "gpu_class": "h100"},
        "Set to whole GPUs only: 1 of 4 h100.",
    ),
    (
        "host_too_small",
        {"cores": 1_000, "memory": 65_536, "asked": 4, "most": 2, "gpu_class": "h100", "level": "any"},
        "The nodes have 1 core and 64 GiB for 2 h100 in all.",
    ),
    ("makes_room", {"pauses": 2}, "It starts when 2 paused bookings have made room."),
    (
        "makes_room",
        {"pauses": 2, "unnotified": 2},
        "Its planned start needs the GPUs of 2 running bookings, which have no notice yet. They get "
        "notice shortly before, if nothing else makes room.",
    ),
    (
        "makes_room",
        {"pauses": 1, "unnotified": 1, "until": 1_800_000_000},
        "Its planned start needs the GPUs of 1 running booking, which is protected for some time after "
        "its start or resume. It gets notice when that is over, if nothing else makes room.",
    ),
    (
        "makes_room",
        {"pauses": 3, "unnotified": 1},
        "Its planned start needs the GPUs of 3 bookings. Without a notice yet: 1; it is given "
        "shortly before, if nothing else makes room.",
    ),
    (
        "taken_back",
        {"lost": 61, "tier": "standard"},
        "A booking within its guarantee needs the GPUs that this booking borrows. "
        "The booking that loses the least is paused: 2 GPU-minutes since the last save.",
    ),
    (
        "taken_back",
        {"lost": 60, "tier": "standard", "whose": "project"},
        "A booking within its project's part of your guarantee needs the GPUs. "
        "The booking that loses the least is paused: 1 GPU-minute since the last save.",
    ),
    (
        "host_too_small",
        {"cores": 16_500, "memory": 65_536, "asked": 4, "most": 2, "gpu_class": "h100", "level": "any"},
        "The nodes have 16.5 cores and 64 GiB for 2 h100 in all.",
    ),
    (
        "pinned",
        {"pin": "n1,n2/3", "elsewhere": 0},
        "It is pinned to n1 or GPU 3 of n2, which is not free for that long.",
    ),
    (
        "placed",
        {"on": "n1,n2,n3,n4", "nodes": 5, "gpus": 40, "asked": 40, "gpu_class": "h100"},
        "40 h100 fit on n1, n2, n3, n4 and more.",
    ),
    (
        "overtaken",
        {"rule": "guarantee", "own_tenant": 0},
        "A booking inside another organisation's guarantee goes first.",
    ),
    ("order_stale", {"problem": "limit"}, "A limit of its organisation or project is reached."),
)


@pytest.mark.parametrize(("code", "facts", "text"), SAID)
def test_a_reason_is_said_with_its_facts(code: str, facts: dict[str, Fact], text: str) -> None:
    why = reason(code, **facts)
    assert sentence(why) == text
    rule = BY_CODE[code]
    assert set(rule.evidence) <= facts.keys() <= {*rule.evidence, *rule.optional}, "a real reason"


def test_a_stored_reason_is_said_when_it_is_shown_and_an_older_one_keeps_its_sentence() -> None:
    stored = {
        "rule": "R45",
        "code": "makes_room",
        "check": "together",
        "numbers": {"pauses": 1},
        "frees_at": None,
    }
    said = "It starts when 1 paused booking has made room."
    assert stored_sentence(stored) == said
    assert reason_shown(stored) == stored | {"sentence": said}
    assert stored_sentence(stored | {"sentence": "As it was."}) == "As it was."


def test_answers_to_people_name_a_class_by_its_label_everywhere() -> None:
    """In reasons, events, refusals and what would change a place; the labels are read once."""
    reads: list[int] = []

    def read() -> dict[str, str]:
        reads.append(1)
        return {"h100": "H100 80 GB"}

    stored = {"code": "tenant_quota", "rule": "R8", "numbers": QUOTA}
    assert stored_sentence(stored).startswith("Your organisation may use 8 h100 at once")
    with class_names(read):
        said = [
            stored_sentence(stored),
            event_sentence({"code": "refused", "facts": {"because": stored, "freed": "€1.00"}}),
            refusal_text("class_not_open", gpu_class="h100"),
            change_text("no_guarantee", gpu_class="h100"),
            sentence(reason("placed", on="n1", nodes=1, gpus=2, asked=2, gpu_class="h100")),
            differences_text({"classes": [["l40s"], ["h100"]]}),
        ]
        shown = reason_shown({**stored, "check": "quota", "frees_at": None})
    assert [each for each in said if "H100 80 GB" not in each or "h100" in each] == []
    assert shown["sentence"] == said[0]
    assert shown["numbers"]["gpu_class"] == "h100", "fields of REST have the slug"
    assert reads == [1]
    assert "h100" in stored_sentence(stored)


def test_answers_to_people_name_a_zone_by_its_name() -> None:
    facts = {"gpu_class": "h100", "zones": "bern,basel", "not_zones": "oslo"}
    why = reason("where_elsewhere", **facts)
    with class_names(dict, lambda: {"bern": "Bern", "oslo": "Oslo"}):
        assert sentence(why) == "There are no h100 in Bern or basel outside of Oslo."
    assert sentence(why) == "There are no h100 in bern or basel outside of oslo."


@pytest.mark.parametrize(("count", "text"), [(0, "0 nodes"), (1, "one node"), (2, "2 nodes")])
def test_a_text_depends_on_the_number_that_it_names(count: int, text: str) -> None:
    said = Plural("one node", "%(nodes)s nodes", "nodes")
    assert said % {"nodes": count} == plural("one node", f"{count} nodes", count) == text


def test_a_loan_that_nobody_can_pause_says_that_it_ends() -> None:
    why = reason("borrowed", own=2 * 56_000, borrowed=2 * 56_000, lasts=1)
    assert sentence(why) == (
        "On 2 own and 2 borrowed GPUs: never paused, and at most as long as its tier can borrow."
    )
    bound = reason(
        "guarantee_only",
        used=0,
        guaranteed=56_000,
        asked=112_000,
        gpu_class="h100",
        borrow_seconds=14_400,
    )
    assert sentence(bound) == (
        "A tier that is never paused can borrow for at most 4 h: 1 of the 1 h100 that your project can "
        "have of your organisation's guarantee are left; this needs 2."
    )
