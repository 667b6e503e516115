"""What scripts add to the core: a field of bookings, orders for nodes, sentences and words."""

from typing import Any

from rest_framework import serializers

from allocation.features.scripts import tasks as tasks  # noqa: PLC0414 (registers the task)
from allocation.features.scripts.card import script_card
from allocation.features.scripts.models import BookingScript
from allocation.features.scripts.services import script_add, scripts_keep, scripts_of
from allocation.models import Booking
from allocation.points import BOOKING_CARDS, BOOKING_PARTS, START_REPORTS, BookingPart
from allocation.points.bookings import NEW_SCRIPTS, NODE_SCRIPTS
from allocation.words.events import event_sentences_add
from allocation.words.refusals import sentences_add
from tenants.platform.rest.body import Shape


class ScriptEndOut(Shape):
    """How the script of a booking ended. `GET …/script` has its text and the end of its output."""

    exit_code = serializers.IntegerField(allow_null=True, help_text="Null: it has not ended.")
    ended = serializers.CharField(help_text="Slurm's word for how it ended, or why it never ran.")
    ended_at = serializers.DateTimeField(allow_null=True)
    log_file = serializers.CharField(help_text="The file of its output on its node.")


def script_shown(booking: Booking, row: BookingScript) -> dict[str, Any]:
    """The script as `ScriptEndOut` takes it."""
    return {
        "exit_code": row.exit_code,
        "ended": row.ended,
        "ended_at": row.ended_at,
        "log_file": row.log_file,
    }


BOOKING_PARTS.append(BookingPart("script", BookingScript, ScriptEndOut, script_shown))
BOOKING_CARDS.append(script_card)
NEW_SCRIPTS.append(script_add)
NODE_SCRIPTS.append(scripts_of)
START_REPORTS.append(scripts_keep)
event_sentences_add(
    {
        "script_ended": "Its script ended with exit code %(code)s; the GPUs are being cleared.",
        "script_never_ran": "It came to a node that runs no scripts, so it ends.",
    }
)
sentences_add(
    {
        "script_empty": "The script is empty.",
        "script_too_long": (
            "A script has at most %(most)s KiB. Put a longer one on storage that the nodes reach, and run it"
            " from there."
        ),
        "script_characters": "A script is text: it has a character that no line of text has.",
        "script_no_array": "An array takes no script yet. Book each run with its own.",
        "script_one_node": (
            "A script runs on one node. Ask for one GPU, or for several that must be on one node, such as"
            " `2 h100 on one node`."
        ),
        "script_not_run": (
            "Only nodes of Slurm run the script of a booking, and %(classes)s has others, such as %(node)s."
            " Book without it and start the program yourself, or pin nodes of Slurm."
        ),
    }
)
