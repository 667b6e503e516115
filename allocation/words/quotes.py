"""The notes at a quote's options: how an option differs from the request, and what may happen."""

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy, ngettext_lazy

from allocation.words.amounts import Facts
from solver.reasons.reason import Fact


def note_text(code: str, /, **facts: Fact) -> str:
    """Returns a note. KeyError: no such note, or a fact is missing."""
    return str(_NOTES[code] % Facts(facts))


_NOTES: dict[str, Promise] = {
    "fewer_gpus": ngettext_lazy(
        "%(count)s GPU instead of %(asked)s",
        "%(count)s GPUs instead of %(asked)s",
        "count",
    ),
    "fewer_slices": ngettext_lazy(
        "%(count)s slice instead of %(asked)s",
        "%(count)s slices instead of %(asked)s",
        "count",
    ),
    "less_memory": gettext_lazy("%(memory)s GB instead of %(asked)s GB"),
    "array_end": ngettext_lazy(
        "the end of the last run is an estimate: %(count)s run at a time, by present quota and free"
        " GPUs, if nobody else books",
        "the end of the last run is an estimate: %(count)s runs at a time at most, by present quota"
        " and free GPUs, if nobody else books",
        "count",
    ),
    "after_parents": gettext_lazy(
        "an estimate: no start is reserved before the bookings that it depends on are over"
    ),
    "pausable": gettext_lazy("may be paused"),
    "mixed_pausable": gettext_lazy(
        "paused before bookings of one class; it starts and resumes only when GPUs of all its "
        "classes are free, and nobody is paused for it"
    ),
    "stopped": gettext_lazy("stopped, not suspended, if it is paused: %(why)s"),
    "pauses_lower_tier": ngettext_lazy(
        "%(count)s running booking of your organisation in a lower tier will be paused",
        "%(count)s running bookings of your organisation in a lower tier will be paused",
        "count",
    ),
    "pauses_borrowed": ngettext_lazy(
        "%(count)s running booking of your organisation on borrowed GPUs will be paused",
        "%(count)s running bookings of your organisation on borrowed GPUs will be paused",
        "count",
    ),
    "shared": gettext_lazy("Shared with others, not isolated"),
    "without_nvlink": gettext_lazy("without NVLink between its GPUs"),
    "anywhere": gettext_lazy("on nodes of any zone and storage"),
    "unpinned": gettext_lazy("on any GPUs, without the pin"),
    "split": gettext_lazy("on separate nodes: its GPUs need not be together"),
    "fewer": gettext_lazy("if the work is shared evenly among its GPUs"),
    "speed_unknown": gettext_lazy("speed not known"),
    "speed": gettext_lazy("about %(speed)s times as fast"),
    "borrowed": gettext_lazy("%(borrowed_gpus)s of %(all_gpus)s borrowed"),
    "borrowed_back": gettext_lazy("%(borrowed_gpus)s of %(all_gpus)s borrowed: the owner can call that back"),
    "on_loan": gettext_lazy(
        "never paused, so it ends at its time; this tier borrows for at most %(longest)s in all, "
        "extensions included"
    ),
    "within_guarantee": gettext_lazy(
        "within your guarantee: may start earlier if others return borrowed GPUs"
    ),
}
