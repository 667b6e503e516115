"""The sentences of operators' acts and their refusals, of rules for approvals, and of Jira."""

from tenants.platform.nouns import Plural, Sentence

_EFFECTS = {
    "message": "%(owner)s gets the message.",
    "release_running": "%(owner)s is asked to release it. It keeps running until they do.",
    "release_waiting": "%(owner)s is asked to cancel it. It keeps its place until they do.",
    "pause": "%(owner)s gets notice now. It is paused after %(grace)s, and can resume %(length)s later.",
    "pause_window": (
        "%(owner)s gets notice now. It is paused after %(grace)s. What is left of its window when "
        "the pause is over is used, and the rest is not charged."
    ),
}
_WHY_NOT: dict[str, Sentence] = {
    "booking_over": "It is over.",
    "booking_ending": "Its GPUs are being cleared already.",
    "paused_already": "It is paused already, or has the notice of a pause.",
    "not_running": "It does not run. To keep it from starting, stop new work.",
    "tier_never_paused": "The tier %(tier)s is never paused. Ask to release it.",
    "paused_enough": Plural(
        "It was paused %(count)s time, the most that the tier %(tier)s allows. Ask to release it.",
        "It was paused %(count)s times, the most that the tier %(tier)s allows. Ask to release it.",
        "count",
    ),
    "ends_before_pause": "It ends before the notice of %(grace)s would be over.",
    "protected": "The tier %(tier)s protects the first %(protected)s of a run.",
}
SENTENCES: dict[str, Sentence] = {
    "decline_reason_missing": "Say why you decline: the person reads it.",
    (
        "cheapest_of_what"
    ): "A booking can't choose the cheapest option. Create a quote and book its first option.",
    "decision_archived": (
        "The documents of decision %(id)s are in the archive file %(archived_in)s. An operator "
        "replays it by `manage.py decision_replay %(id)s --archive FOLDER`."
    ),
    "too_many_replays": Plural(
        "%(count)s replay is waiting. Ask again in a few minutes.",
        "%(count)s replays are waiting. Ask again in a few minutes.",
        "count",
    ),
    (
        "approval_changed_since"
    ): "%(booking)s has changed since. It waits for a decision on what it asks for now.",
    "bad_message": "Paste a JSON object, as Jira sends it.",
    "clock_not_in_doubt": "No clock has jumped: there is nothing to accept.",
    (
        "enrolment_refused"
    ): "This enrolment token is unknown, used or older than 15 minutes. Ask the operator for a new one.",
    (
        "agent_too_old"
    ): "The agent of %(node)s (%(version)s) %(limit)s. Upgrade it to %(needed)s or later first.",
    "node_locked_out": (
        "%(node)s is locked out: its agent has no account any more, so it can't return by itself. "
        "Enrol it again: Install an agent, or `manage.py enrol_token --node %(node)s`, makes a "
        "token; on the node run `GPU_AGENT_TOKEN=TOKEN gpu-agent --portal %(portal)s "
        "--name %(node)s --enrol-again` once. Then return it to service."
    ),
    "node_not_enrolled": "%(node)s has no enrolled agent. Install one first.",
    "node_name_invalid": "A node's name has lower-case letters, digits and hyphens, at most 60 characters.",
    "engine_name_invalid": (
        "An engine's name has lower-case letters, digits and hyphens, at most 40 characters."
    ),
    "engine_other": (
        "%(engine)s is the engine of a site with %(scheduler)s, and has hosts. Enrol another engine."
    ),
    "engine_locked_out": (
        "The portal knows no engine with this account: it was locked out, or enrolled elsewhere. Enrol it"
        " again with a new token and --enrol-again."
    ),
    "engine_not_enrolled": "The engine %(engine)s has no enrolled agent. Enrol it first.",
    "engine_message_invalid": "The message of the engine is refused: %(why)s.",
    "engine_message_old": "A newer message of the engine %(engine)s was taken already.",
    "host_taken": (
        "%(node)s has %(whose)s, and a node has one identity. Lock it out there first; what runs on it"
        " continues."
    ),
    "host_of_engine": (
        "Hosts of Slurm and Kubernetes are enrolled together, by their engine. Make its token at"
        " %(portal)s/ops/engines."
    ),
    "no_host_of_kind": "No host with %(kind)s waits for approval.",
    "models_unknown": (
        "Nothing can be planned on %(node)s: no model named %(names)s is in the catalogue. Add the "
        "model first."
    ),
    "rotation_running": (
        "%(node)s has been sent its new key and has not signed with it yet. If its agent no longer "
        "answers, lock it out and enrol it again."
    ),
    "inventory_invalid": "The inventory can't be read: %(error)s.",
    "mode_unknown": "A GPU is pinned to whole or to sliced.",
    "mode_impossible": "A %(product_name)s has no slices.",
    "ends_without_warning": "Processes are ended only after a warning, at least a minute later.",
    "bookings_per_call": "Choose 1 to %(most_bookings)s bookings.",
    "class_label_taken": "Another class has this name.",
    "class_kind_fixed": "What the units of a class are never changes: make another class.",
    "model_of_other_kind": "“Host core” is the model of classes of host cores, and no other model is.",
    "bad_class_order": "A position in lists is 0 to %(most_order)s.",
    "class_in_use": (
        "%(found)s is in use by %(uses)s and can't be removed. A class that has had a price stays "
        "for the record of charges."
    ),
    "product_name_taken": "The model %(other)s has this name.",
    "model_in_use": Plural(
        "%(product_name)s is in use by %(count)s GPU or past booking and can't be removed.",
        "%(product_name)s is in use by %(count)s GPUs or past bookings and can't be removed.",
        "count",
    ),
    "bad_model_memory": "Memory is a whole number of MiB, e.g. 81559.",
    "bad_model_reset": "A reset takes 1 to %(longest_switch)s seconds; 0 means none is needed.",
    "model_fixed": "%(product_name)s has GPUs, so its product name, class and memory can't change.",
    "tenant_has_no_booking": "This organisation has no booking with that number.",
    "amount_not_positive": "Enter an amount above zero.",
    "booking_not_over": "%(booking)s is not over. Its charge can be corrected when it is.",
    "refund_too_large": "At most %(was)s can be refunded.",
    "charge_too_large": "At most %(room)s more can be charged.",
    "correction_reason": "Enter a reason of 1 to 200 visible characters. The project can read it.",
    "no_such_booking_number": "There is no booking with that number.",
    "deadline_past": "The deadline has passed.",
    "gpu_in_service": "%(gpu)s is already in service.",
    "still_in_service": "%(where)s takes work. Drain the node, switch it off, then confirm it here.",
    "note_needed": "Describe what was done; the history shows it.",
    "blackout_over": "The maintenance of %(where)s is already over.",
    "maintenance_far": "Plan maintenance at most a year ahead.",
    "maintenance_reason": "Describe the maintenance; users read it.",
    "maintenance_deadline": "Work has to end between the start and the end of the maintenance.",
    "end_before_start": "The end must be after the start.",
    (
        "maintenance_end_past"
    ): "Maintenance that has begun can't end in the past. Name a later end, or end it now.",
    "maintenance_running": (
        "The maintenance of %(where)s has begun. Its end, its deadline and its reason can change, "
        "its start can't."
    ),
    "maintenance_past": "Maintenance can't start in the past.",
    "maintenance_long": "Maintenance lasts at most 90 days.",
    (
        "not_your_nodes"
    ): "%(node)s is not among the nodes of your roles: %(own)s. Roles are given by %(people)s.",
    "one_target": "Name either a rack or a node.",
    "outage_length": "A planned outage takes at least a minute and at most four hours.",
    "freeze_length": "A freeze lasts at most 30 days.",
    "bad_duration": "Write the duration like “20m” or “2h”.",
    "mode_reason": "Enter a reason; all members read it.",
    "choice_unknown": "Choose one of the values.",
    "model_not_shipped": "The shipped catalogue has no model %(slug)s. Describe it yourself.",
    "stop_reason": "Enter a reason. Everybody who is stopped reads it.",
    "stop_length": "A stop lasts at most 90 days.",
    "unknown_scope": "Stop one of: %(known)s.",
    "stop_over": "The stop of %(of)s is over.",
    "no_speed": (
        "The speed of %(workload)s on %(gpu_class)s is not known. %(known)s Leave the kind of work "
        "out to book a fixed duration."
    ),
    "bad_speed": "A speed is more than 0 and at most 1000 times the reference class.",
    "bad_length": "Enter how long the pause lasts: from 1 min to 7 days, such as 4h.",
    "owner_message": "Enter a text of 1 to %(longest)s visible characters. The owners read it.",
    "series_too_long": "Maintenance repeats at most %(max_dates)s times. Choose an earlier last day.",
    "maintenance_overlap": "A date would start before the previous one ends. Make them shorter.",
}


def bulk_effect(code: str, /, **facts: object) -> str:
    """Returns what happens to a booking. KeyError: no such effect, or a fact is missing."""
    return str(_EFFECTS[code] % facts)


def bulk_refusal(code: str, /, **facts: object) -> str:
    """Returns why nothing happens to a booking. KeyError as `bulk_effect`."""
    return str(_WHY_NOT[code] % facts)
