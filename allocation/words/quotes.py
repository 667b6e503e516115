"""The notes at a quote's options: how an option differs from the request, and what may happen."""

from allocation.words.amounts import Facts
from solver.reasons.reason import Fact
from tenants.platform.nouns import Plural, Sentence


def note_text(code: str, /, **facts: Fact) -> str:
    """Returns a note. KeyError: no such note, or a fact is missing."""
    return str(_NOTES[code] % Facts(facts))


_NOTES: dict[str, Sentence] = {
    "fewer_gpus": Plural(
        "%(count)s GPU instead of %(asked)s",
        "%(count)s GPUs instead of %(asked)s",
        "count",
    ),
    "fewer_slices": Plural(
        "%(count)s slice instead of %(asked)s",
        "%(count)s slices instead of %(asked)s",
        "count",
    ),
    "less_memory": "%(memory)s GB instead of %(asked)s GB",
    "array_end": Plural(
        "the end of the last run is an estimate: %(count)s run at a time, by present quota and free"
        " GPUs, if nobody else books",
        "the end of the last run is an estimate: %(count)s runs at a time at most, by present quota"
        " and free GPUs, if nobody else books",
        "count",
    ),
    "after_parents": "an estimate: no start is reserved before the bookings that it depends on are over",
    "step_cost": "1,000 %(unit)ss of %(workload)s cost %(cost)s by %(runs)s finished runs",
    "pausable": "may be paused",
    "mixed_pausable": (
        "paused before bookings of one class; it starts and resumes only when GPUs of all its "
        "classes are free, and nobody is paused for it"
    ),
    "stopped": "stopped, not suspended, if it is paused: %(why)s",
    "pauses_lower_tier": Plural(
        "%(count)s running booking of your organisation in a lower tier will be paused",
        "%(count)s running bookings of your organisation in a lower tier will be paused",
        "count",
    ),
    "pauses_borrowed": Plural(
        "%(count)s running booking of your organisation on borrowed GPUs will be paused",
        "%(count)s running bookings of your organisation on borrowed GPUs will be paused",
        "count",
    ),
    "shared": "Shared with others, not isolated",
    "without_nvlink": "without NVLink between its GPUs",
    "anywhere": "on nodes of any zone and storage",
    "unpinned": "on any GPUs, without the pin",
    "split": "on separate nodes: its GPUs need not be together",
    "fewer": "if the work is shared evenly among its GPUs",
    "speed_unknown": "speed not known",
    "speed": "about %(speed)s times as fast",
    "borrowed": "%(borrowed_gpus)s of %(all_gpus)s borrowed",
    "borrowed_back": "%(borrowed_gpus)s of %(all_gpus)s borrowed: the owner can call that back",
    "on_loan": (
        "never paused, so it ends at its time; this tier borrows for at most %(longest)s in all, "
        "extensions included"
    ),
    "within_guarantee": "within your guarantee: may start earlier if others return borrowed GPUs",
}
