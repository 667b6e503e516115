"""The sentences about requests that cannot be read: lines, documents and recurrences."""

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

SENTENCES: dict[str, Promise] = {
    "ask_array_size": gettext_lazy("An array has 1 to %(most_elements)s runs."),
    "ask_parallel": gettext_lazy("1 to %(most_parallel)s runs can be open at once."),
    "ask_no_array": gettext_lazy(
        "Only an array can limit how many runs are open at once. Begin with “array of 500:”."
    ),
    "ask_array_repeats": gettext_lazy("An array can't repeat. Leave out either the array or the recurrence."),
    "ask_array_start": gettext_lazy(
        "The runs of an array start one after the other, so it can't have a start."
    ),
    "ask_runs_or_gpus": gettext_lazy(
        "Do you mean %(said)s runs of 1 GPU each, or one booking of %(said)s GPUs?"
    ),
    "ask_runs_or_product": gettext_lazy(
        "Do you mean %(runs)s runs of %(what)s, or all of them in one booking?"
    ),
    "ask_long": gettext_lazy("A request has at most %(max_text_length)s characters."),
    "ask_one_line": gettext_lazy("A request must be one line of plain text."),
    "ask_window_twice": gettext_lazy("Use either an exact start, or an earliest start and a deadline."),
    "ask_deadline_short": gettext_lazy("The booking is longer than the time until the deadline."),
    "ask_deadline_backward": gettext_lazy("The deadline is not after the earliest start."),
    "ask_no_class": gettext_lazy("Name a GPU class."),
    "ask_groups_most": gettext_lazy("A request can have at most %(max_groups)s groups."),
    "ask_group_class": gettext_lazy("Name one GPU class for each group."),
    "ask_class_twice": gettext_lazy("Two groups name %(name)s. Add their counts together."),
    "ask_group_share": gettext_lazy("A request with several groups can't have a share."),
    "ask_group_workload": gettext_lazy("A request with several groups can't have a kind of work."),
    "ask_group_pin": gettext_lazy("A request with several groups can't have a pin."),
    "ask_data": gettext_lazy("%(param)s has at most %(max_data)s names of data sets."),
    "ask_data_name": gettext_lazy("A name in %(param)s has a-z, 0-9 and . _ -, such as imagenet."),
    "ask_only_books": gettext_lazy(
        "This field only makes bookings. Open a booking to extend, release or cancel it."
    ),
    "ask_denial": gettext_lazy("“%(text)s” is not understood. State only what you need."),
    "ask_incomplete": gettext_lazy("“%(text)s” is incomplete. Example: “%(example)s”."),
    "ask_word": gettext_lazy("“%(text)s” is not understood."),
    "ask_other_gpu": gettext_lazy("This site has no %(gpu)s. Available: %(labels)s."),
    "ask_fraction": gettext_lazy("%(token)s is not a number of GPUs. Do you mean %(choices)s?"),
    "ask_bare_number": gettext_lazy("Do you mean %(token)s GPUs or %(token)s hours?"),
    "ask_gpu_hours": gettext_lazy(
        "%(hours)s GPU-hours can be one GPU for %(hours)s hours, or more GPUs for less time."
    ),
    "ask_weekdays": gettext_lazy("Do you mean each of these days once, or every week?"),
    "ask_exact_number": gettext_lazy("A booking needs an exact number of GPUs."),
    "ask_whole_node": gettext_lazy(
        "Nodes can't be booked as a whole. Give a number of GPUs and “same node”."
    ),
    "ask_node_number": gettext_lazy("The number of nodes can't be chosen. Give the number of GPUs."),
    "ask_two_requests": gettext_lazy("These are two requests. Send them one after the other."),
    "ask_currency": gettext_lazy("Amounts are in EUR."),
    "ask_money": gettext_lazy("A request has no limit of money: each option shows its price."),
    "ask_hour_h": gettext_lazy("“%(token)s” is a duration. Write the time as “%(clock)s”."),
    "ask_one_or_other": gettext_lazy("Do you mean %(first)s or %(last)s?"),
    "ask_no_project": gettext_lazy("You have no project “%(project)s”."),
    "ask_time_past": gettext_lazy("This time is in the past."),
    "ask_within": gettext_lazy("Give a deadline, such as “by 18:00”, or a duration, such as “for 2h”."),
    "ask_apart": gettext_lazy("Do you mean one node, NVLink domain or rack?"),
    "ask_class_or_any": gettext_lazy("Name a class of %(what)s, or “any”."),
    "ask_duration": gettext_lazy("Add a duration, such as 6h."),
    "ask_cores_or_gpus": gettext_lazy("A booking has GPUs or host cores, and can't choose between them."),
    "ask_which_memory": gettext_lazy("Do you mean %(gigabytes)s GB of GPU memory or of host memory?"),
    "ask_workload": gettext_lazy("There is no kind of work called %(kind)s. Available: %(names)s."),
    "ask_profile": gettext_lazy("%(classes)s does not offer the slice %(profile)s."),
    "ask_most_cost": gettext_lazy("Write an amount such as 60 or 60.50."),
    "ask_may_burst": gettext_lazy("Give both: `may_burst` is true, and `most_cost` says how much."),
    "ask_share_of_one": gettext_lazy(
        "A share is a part of one GPU. It can't be combined with a count or a slice."
    ),
    "ask_how_many": gettext_lazy("Give the number of %(words)s."),
    "ask_which_slice": gettext_lazy("Choose a slice: %(names)s."),
    "ask_compute_slice": gettext_lazy("Choose a slice with %(number)s compute units."),
    "ask_memory": gettext_lazy("No GPU has %(gigabytes)s GB. Available: %(sizes)s GB."),
    "ask_which_half": gettext_lazy("Do you mean %(time)s or %(later)s?"),
    "ask_midnight": gettext_lazy("Do you mean the midnight before or after that day?"),
    "ask_time_in_part": gettext_lazy("Give a time in the %(part)s."),
    "ask_other_week": gettext_lazy("This day is not in this week."),
    "ask_times_contradict": gettext_lazy("These times contradict each other. Give one day and one time."),
    "ask_no_such_time": gettext_lazy("This time does not exist."),
    "ask_part_of_zero": gettext_lazy("A part of a GPU is a fraction such as 1/2, a day such as 11/27."),
    "ask_no_such_day": gettext_lazy("This day does not exist."),
    "ask_several_days": gettext_lazy("“%(token)s” can be several days."),
    "ask_no_such_clock": gettext_lazy("This time of day does not exist."),
    "ask_not_in_part": gettext_lazy("This time is not in the %(part)s."),
    "ask_first_day": gettext_lazy("Give the first day, such as “from 1 dec”."),
    "ask_weekend": gettext_lazy("This can be two weekends. Choose one."),
    "ask_month_days": gettext_lazy(
        "Use days of the month: “2nd tue, last fri”, “1st and 15th”, “last weekday”."
    ),
    "ask_month_days_kind": gettext_lazy(
        "Use days of the month of one kind: “2nd tue, last fri” or “1st and 15th”."
    ),
    "ask_last_day": gettext_lazy("Give the last day of the series, such as “until 31 jan”."),
    "ask_recurrence": gettext_lazy("Add a recurrence, such as “every mon”."),
    "ask_end_twice": gettext_lazy("Give either the last day or the number of dates, not both."),
    "ask_clock": gettext_lazy("Add a time of day, such as “9-17”."),
    "ask_these_days": gettext_lazy("Choose one of these days."),
    "ask_start_or_duration": gettext_lazy("Add a start, such as “from 9:00”, or a duration, such as “2h”."),
    "ask_deadline_day": gettext_lazy("The deadline must be one day."),
    "ask_every_day": gettext_lazy("Add a recurrence, such as “every day”."),
    "ask_duration_twice": gettext_lazy("The request already has a duration."),
    "ask_morning": gettext_lazy("Do you mean the morning or the afternoon?"),
    "ask_day": gettext_lazy("Add a day, such as “tomorrow”."),
    "ask_start_day": gettext_lazy("Choose the day of the start."),
    "ask_window_empty": gettext_lazy("The window ends at the time at which it starts."),
    "ask_window_backward": gettext_lazy("The window ends before it starts."),
    "ask_window_length": gettext_lazy("%(first)s to %(last)s is %(window)s, not %(length)s."),
    "ask_which_end": gettext_lazy("Add “by” or “until” before it."),
    "ask_day_past": gettext_lazy("This day is in the past."),
    "ask_which_part": gettext_lazy("Do you mean this %(part)s or tomorrow's?"),
    "ask_object": gettext_lazy("`ask` must be a JSON object."),
    "ask_field": gettext_lazy("There is no such field."),
    "ask_required": gettext_lazy("`%(name)s` is required."),
    "ask_starts_twice": gettext_lazy("Send either `starts`, or `not_before` and `deadline`."),
    "ask_deadline_unreachable": gettext_lazy(
        "The duration is longer than the time from `not_before` to `deadline`."
    ),
    "ask_field_of_group": gettext_lazy(
        "Send `%(name)s` in `groups`: each group of a mixed request has its own."
    ),
    "ask_field_not_in_groups": gettext_lazy("A request with several groups can't have `%(name)s`."),
    "ask_count": gettext_lazy("The count must be between 1 and %(max_count)s."),
    "ask_duration_bounds": gettext_lazy("The duration must be between 1 minute and 90 days."),
    "ask_duration_form": gettext_lazy(
        "The duration must be whole seconds or an ISO 8601 duration, such as PT6H."
    ),
    "ask_whole": gettext_lazy("%(param)s must be a whole number."),
    "ask_share_bounds": gettext_lazy("A share must be between 1 and 999 thousandths of a GPU."),
    "ask_host_bounds": gettext_lazy("%(param)s must be between 0 and %(max_host_resource)s."),
    "ask_name": gettext_lazy("%(param)s must have 1 to %(max_name_length)s printable characters."),
    "ask_classes": gettext_lazy("classes must be a list of 1 to %(max_classes)s GPU classes."),
    "ask_classes_once": gettext_lazy("classes must not repeat a GPU class."),
    "ask_pins": gettext_lazy("%(param)s must be a list of at most %(max_pins)s nodes or GPUs."),
    "where_form": gettext_lazy("Name zones and storage, such as: not in basel, local nvme, 1 tb scratch."),
    "ask_zones": gettext_lazy("%(param)s must be a list of at most %(max_zones)s zones."),
    "ask_zone_both": gettext_lazy("The zone %(zone)s is both named and excluded."),
    "ask_no_zone": gettext_lazy("There is no zone %(zone)s."),
    "ask_no_zone_of": gettext_lazy("There is no zone %(zone)s, only %(names)s."),
    "ask_scratch_local": gettext_lazy("Scratch space is local, so the storage can't be shared storage."),
    "ask_together": gettext_lazy("%(param)s must be one of %(choices)s."),
    "ask_flag": gettext_lazy("%(param)s must be true or false."),
    "ask_instant": gettext_lazy(
        "%(param)s must be a time with an offset, such as 2026-11-24T09:00:00+01:00."
    ),
    "ask_years": gettext_lazy("%(param)s must be between the years %(first)s and %(last)s."),
    "ask_groups": gettext_lazy("%(param)s must be a list of %(min_groups)s to %(max_groups)s groups."),
    "ask_groups_once": gettext_lazy(
        "Each group needs a GPU class of its own. Add the counts of a class together."
    ),
    "ask_group_needs_class": gettext_lazy("A group needs `gpu_class`."),
    "ask_is_array": gettext_lazy("This request is an array of several runs, which is not possible here."),
    "ask_repeats": gettext_lazy("This request repeats. Create a series for it."),
    "ask_gpu_class": gettext_lazy("Name a GPU class, or “any”."),
    "ask_twice": gettext_lazy("The request says its %(what)s twice: keep one."),
    "rrule_end_twice": gettext_lazy("Send either COUNT or UNTIL, not both."),
    "rrule_no_end": gettext_lazy("Add a last day or a number of times."),
    "rrule_long": gettext_lazy("The rule is too long. Create two series."),
    "rrule_monthly": gettext_lazy("Numbered weekdays (2TU), BYMONTHDAY and BYSETPOS require FREQ=MONTHLY."),
    "rrule_setpos": gettext_lazy("BYSETPOS requires BYDAY or BYMONTHDAY."),
    "rrule_no_dates": gettext_lazy("The series ends before its first date."),
    "rrule_until": gettext_lazy(
        "UNTIL must be the last day in your time zone, such as UNTIL=20270131, or a time: "
        "UNTIL=20270131T080000Z."
    ),
    "rrule_dates": gettext_lazy("A series can have at most %(max_dates)s dates."),
    "ask_no_project_of": gettext_lazy("You have no project “%(project)s”. Your projects: %(names)s."),
    "ask_clock_skipped": gettext_lazy("%(clock)s does not exist on %(day)s in %(zone)s."),
    "ask_add_start": gettext_lazy("Add a start, such as “9:00-17:00”."),
    "rrule_form": gettext_lazy(
        "Use FREQ=DAILY, WEEKLY or MONTHLY with INTERVAL, BYDAY=MO,WE, WKST, and COUNT or "
        "UNTIL=20270131. MONTHLY also takes BYDAY=2TU,-1FR, BYMONTHDAY and BYSETPOS."
    ),
}
