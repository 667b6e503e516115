"""What hand-overs add to the core: their task, their step of a turn, sentences and words."""

from allocation.features.hand_overs import tasks as tasks  # noqa: PLC0414 (registers the task)
from allocation.features.hand_overs.services import hand_overs_left, hand_overs_left_close
from allocation.points.bookings import TURN_STEPS, TurnStep
from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS, NAMED_BY

sentences_add(
    {
        "hand_over_begun": (
            "%(label)s has begun, waits for an answer, or is over. A booking is handed over before that, "
            "because its account on the node can't change."
        ),
        (
            "hand_over_group"
        ): "%(label)s belongs to a series or an array, which has one owner. Your colleague can book it anew.",
        (
            "hand_over_share"
        ): "%(label)s shares its GPUs with other work of its owner, so it can't get another one.",
        "hand_over_personal": (
            "%(label)s was approved for its owner, or has an exception from a limit. Ask your colleague to "
            "book it anew."
        ),
        (
            "hand_over_change_open"
        ): "A change of %(label)s is not decided yet. Wait for it, or withdraw it first.",
        "hand_over_taker": "%(person)s can't book in %(project)s. Choose somebody who can.",
        "hand_over_self": "%(label)s has this owner already. Choose a colleague.",
        "hand_over_days": "Choose from 1 to %(most)s days to answer.",
        "hand_over_none": "%(label)s is not offered to anybody now, or the offer is over.",
        "hand_over_not_yours": "Only the person who is offered a booking can answer.",
        "hand_over_changed": "%(label)s was changed after it was offered to you. Ask for a new offer.",
        "hand_over_hook": (
            "The policy hook of your organisation admits %(label)s for you only with another tier or window. "
            "Book it anew."
        ),
        (
            "hand_over_needs_approval"
        ): "A booking of yours like this needs an approval, by %(rules)s. Book it anew to ask for one.",
        "hand_over_quota": (
            "At the time of %(label)s you have %(used)s units of %(gpu_class)s already, and your limit is "
            "%(limit)s."
        ),
    }
)
TURN_STEPS["hand_overs_left"] = TurnStep(hand_overs_left, hand_overs_left_close)
ACTIONS["hand_over.offered"] = "offered booking {object} to a colleague"
ACTIONS["hand_over.accepted"] = "took over booking {object}"
ACTIONS["hand_over.declined"] = "declined booking {object} of a colleague"
ACTIONS["hand_over.withdrawn"] = "withdrew the offer of booking {object}"
ACTIONS["hand_over.expired"] = "let the offer of booking {object} expire"
NAMED_BY["hand_over"] = ("booking",)
