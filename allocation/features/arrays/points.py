"""What arrays add to the core: how they are asked for and cancelled, their step of a turn, and words."""

from allocation.features.arrays.elements import arrays_advance, arrays_open
from allocation.features.arrays.queries import arrays_words
from allocation.features.arrays.services import array_cancel, array_request
from allocation.points.arrays import ARRAYS, Arrays
from allocation.points.bookings import TURN_PREPARES, TurnStep
from allocation.words.events import event_sentences_add
from allocation.words.refusals import sentences_add
from tenants.platform.nouns import Plural
from tenants.rules.audit_words import ACTIONS, NAMED_BY

ARRAYS.append(Arrays(array_request, array_cancel, arrays_words))
TURN_PREPARES["arrays"] = TurnStep(arrays_open, arrays_advance, makes_due=False)
sentences_add(
    {
        (
            "bad_elements"
        ): "%(label)s has the elements 1 to %(count)s. Write them as 17 or 3-20, separated by commas.",
    }
)
event_sentences_add(
    {
        "array_element": "Its turn in the array %(label)s has come; %(held)s held.",
        "array_started": "The array %(label)s has started (elements: %(count)s).",
        "array_failures": "Failed elements of the array %(label)s: %(failures)s of %(count)s.",
        (
            "array_ended"
        ): "The array %(label)s is over (elements: %(count)s): %(ended)s ended and %(failures)s failed.",
        "array_stopped": Plural(
            "Cancelled, because %(failures)s element of its array has failed. It costs nothing.",
            "Cancelled, because %(failures)s elements of its array have failed. It costs nothing.",
            "failures",
        ),
    }
)
ACTIONS["array.cancel"] = "cancelled elements of the array {object}"
ACTIONS["array.request"] = "requested the array {object}"
NAMED_BY["array"] = ("label",)
