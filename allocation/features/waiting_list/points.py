"""What the waiting list adds to the core: its part of bookings and turns, sentences and words."""

from collections.abc import Iterator
from datetime import datetime

from django.db.models import Min

from allocation.features.waiting_list.entries import waiting_change, waits_of
from allocation.features.waiting_list.groups import bookings_exclude, rivals_due, rivals_withdraw
from allocation.features.waiting_list.offers import offer_withdraw, offers_due, offers_expire
from allocation.features.waiting_list.page import home_card
from allocation.features.waiting_list.placing import offers_of_plan
from allocation.features.waiting_list.queries import waitlisted_by_class
from allocation.features.waiting_list.turn import (
    entries_due,
    entries_expire,
    entries_open,
    entries_to_offer,
    nights_due,
    nights_note,
)
from allocation.points import METRICS
from allocation.points.bookings import (
    BEFORE_CANCEL,
    CHANGES_BY_STATE,
    ENTRIES,
    HOME_CARDS,
    HOURS_WAITED_FOR,
    NEW_WAITS,
    ONLY_ONE,
    PLAN_WRITTEN,
    TURN_STEPS,
    Entries,
    TurnStep,
)
from allocation.rules.states import ON_WAITLIST
from allocation.words.events import event_sentences_add
from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS
from wire.exposition import Metric, Value


def _metrics(now: datetime) -> Iterator[Metric]:
    oldest = entries_open(now).aggregate(at=Min("created_at"))["at"]
    age = 0.0 if oldest is None else (now - oldest).total_seconds()
    says = "Age of the oldest entry of the waiting list."
    yield Metric("gpu_portal_waiting_list_age_seconds", "gauge", says, (Value(age),))


NEW_WAITS.append(waits_of)
ONLY_ONE.append(bookings_exclude)
CHANGES_BY_STATE.update(dict.fromkeys(ON_WAITLIST, waiting_change))
BEFORE_CANCEL.append(offer_withdraw)
TURN_STEPS["offers"] = TurnStep(offers_due, offers_expire)
TURN_STEPS["entries"] = TurnStep(entries_due, entries_expire)
TURN_STEPS["rivals"] = TurnStep(rivals_due, rivals_withdraw)
TURN_STEPS["nights"] = TurnStep(nights_due, nights_note, makes_due=False)
ENTRIES["entries"] = Entries(entries_open, entries_to_offer)
PLAN_WRITTEN.append(offers_of_plan)
HOURS_WAITED_FOR.append(waitlisted_by_class)
HOME_CARDS.append(home_card)
METRICS.append(_metrics)
sentences_add(
    {
        "wait_in_series": (
            "The dates of a series and the elements of an array can't wait for full windows. Book one "
            "of them alone to wait for it."
        ),
        (
            "wait_needs_length"
        ): "A request by kind of work has no fixed duration, so it can't wait for a window. Name a duration.",
        "wait_mixed": (
            "A booking with several groups can wait to be booked, but it gets no offers. Send `if_full` "
            "instead."
        ),
        (
            "any_of_waits"
        ): "Name at least two bookings of which you need only one. Each of them must wait for a full window.",
        "entry_twice": "An entry is named twice.",
        "entries_of_one": "Only entries of one person can exclude each other.",
        (
            "rival_met"
        ): "You needed only one of these bookings, and another one got its place. This offer is over.",
        "offer_was_accepted": "This offer was accepted already.",
        "offer_was_declined": "This offer was declined already.",
        "offer_was_expired": "The time to accept this offer is over. Your booking stays on the waiting list.",
        "offer_was_withdrawn": "This offer was withdrawn.",
        "offer_not_yours": "Only its owner and the project's leads may answer this offer.",
        "offer_needs_approval": (
            "This needs an approval, by the rule %(rules)s, which takes longer than an offer is open. "
            "Choose to book the window as soon as it is free: the approval is then requested now."
        ),
        "offer_open": "%(label)s has an open offer. Accept or decline it, then change the booking.",
        "entry_over": "%(label)s has left the waiting list.",
        "window_backward": "A window must end after it begins.",
        "window_missing": "Enter at least one window.",
        "not_refused": "%(label)s was not refused, so it can't join the waiting list.",
        "no_entries": "Choose the bookings of which you need only one.",
    }
)
event_sentences_add(
    {
        (
            "awaits_offer"
        ): "On the waiting list: the owner gets an offer when its window is free. No money is held.",
        "offered": "Answer by",
        "offer_accepted": "%(actor)s accepted the offer; %(held)s held.",
        "offer_declined": "%(actor)s declined the offer; the next entry on the waiting list gets it.",
        "offer_expired": "Nobody answered the offer in time; the next entry on the waiting list gets it.",
        "offer_withdrawn": (
            "The offer is withdrawn: a booking inside its guarantee has no other room. Your place in "
            "the queue stays as it was."
        ),
        "offers_end": "Nobody answered two offers in a row, so it gets no more until its owner asks again.",
        "entry_woken": "%(actor)s asked for offers again.",
        "entries_exclude": "%(actor)s: only one of %(labels)s is booked.",
        (
            "entries_exclude_elsewhere"
        ): "%(actor)s: only one of %(labels)s and of entries in other projects is booked.",
        "entry_alone": "%(actor)s: it is booked even if one of the others is booked.",
        "rival_met": "%(label)s got its place, so this booking is not needed. It costs nothing.",
        (
            "rival_met_elsewhere"
        ): "An entry in another project got its place, so this booking is not needed. It costs nothing.",
        "no_window_left": "It has no other window to wait for. Nothing is charged.",
        "wait_missed": "There was no room in its window until its last start. %(freed)s is no longer held.",
    },
    until={"offered": "Answer by"},
)
ACTIONS["offer.accept"] = "accepted an offer for booking {object}"
ACTIONS["offer.decline"] = "declined an offer for booking {object}"
