"""The names of the policy's parameters, by group, with what each means."""

NO_NAMES = "none"
# Units of counts and shares; all other values are durations.
COUNTS = {
    "share_step": "millionths of a class",
    "share_owners": "owners",
    "neighbourhoods": "tries",
    "plan_depth": "bookings",
    "exact_neighbourhoods": "tries",
    "mode_changes": "0 or 1",
    "no_show_share": "%",
    "idle_below": "%",
    "soft_gpus": "GPUs",
    "soft_borrow": "%",
    "long_run_weight": "times",
    "future_requests": "requests",
    "host_core_cost": "units of a GPU (56,000)",
    "host_cores_off": "thousandths of a core",
    "moved_bookings": "bookings",
    "node_sets": "sets",
    "exact_pieces": "pieces",
    "alternatives": "options",
}
GROUPS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "Time and order",
        (
            ("grid", "Start time step", "Start times are multiples of this."),
            ("freeze_horizon", "Fixed starts", "Starts within this time no longer move."),
            ("horizon", "Planning horizon", "No booking is planned later than this."),
            ("half_life", "Half-life of past use", "After this time, use counts half."),
            (
                "class_weights",
                "What a class counts in shares",
                "In percent, by class, such as l40s 25: its past use then counts a quarter of others. "
                f"{NO_NAMES}: each class counts 100.",
            ),
            ("share_step", "Fair-share step", "Smaller differences are ignored."),
            ("age_step", "Waiting-time step", "Smaller differences are ignored."),
            ("order", "Order of the queue", "After the bands; the first key decides first."),
            (
                "patience",
                "Longest wait behind others",
                "After it, a booking goes before borrowers.",
            ),
            ("epoch", "Refresh of past use", "Shares, and so the queue, change at its multiples."),
            (
                "plan_depth",
                "Planned starts",
                "Only so many of the queue get one; those behind start when there is room. 0: all.",
            ),
        ),
    ),
    (
        "Pauses",
        (
            (
                "cool_down",
                "Cool-down after a pause",
                "A booking is not paused again for this long.",
            ),
            (
                "victim_rules",
                "Rules that pause",
                f"Names, separated by commas. {NO_NAMES}: nobody is paused.",
            ),
            (
                "borrow_windows",
                "Longest loan without a pause",
                "By tier that is never paused, * for all others, such as standard 4h. "
                f"Longer bookings wait for their guarantee. {NO_NAMES}: no such tier borrows.",
            ),
            (
                "notice_margin",
                "Notice margin",
                "Sent this much earlier, to be in time between cycles.",
            ),
        ),
    ),
    (
        "Placement",
        (
            ("share_owners", "Owners per shared GPU", "Above 1, unrelated owners can share a GPU."),
            (
                "neighbourhoods",
                "Improvement moves per cycle",
                "Attempts to improve planned bookings.",
            ),
            (
                "exact_neighbourhoods",
                "Exact improvement moves",
                "Of these, exact ones: slower and never worse.",
            ),
            ("mode_changes", "Mode changes by reset", "0: GPUs that need a reset keep theirs."),
            (
                "mode_patience",
                "Minimum gain of a mode change",
                "A start must be this much earlier.",
            ),
        ),
    ),
    (
        "Placement score",
        (
            ("long_run_weight", "Weight of later use", "Against the use that is possible at once."),
            ("future_requests", "Requests looked ahead", "Of the recent mix of demand."),
            ("host_core_cost", "Cost per core out of ratio", "Free cores per free GPU of a node."),
            ("host_cores_off", "Most cores that count", "More make no difference."),
        ),
    ),
    (
        "Headroom",
        (
            (
                "headroom",
                "GPUs kept free at peaks",
                "By class, such as h100 2. Work that borrows and can wait does not start on them. "
                f"{NO_NAMES}: off.",
            ),
            (
                "headroom_for",
                "Who may use them at once",
                "By tier, the longest booking, such as flex 2h. Guarantees, fixed starts and work that is "
                f"never paused may always. {NO_NAMES}: only these.",
            ),
        ),
    ),
    (
        "Slices made ahead",
        (
            (
                "slice_ahead",
                "GPUs sliced ahead",
                "By class, such as h100 1. Empty GPUs get the slices that the forecast expects to be asked "
                f"for. {NO_NAMES}: off.",
            ),
        ),
    ),
    (
        "Search limits",
        (
            ("moved_bookings", "Bookings moved for one", "Planned ones, at their own time."),
            ("node_sets", "Sets of nodes tried for it", "Those with the fewest moves first."),
            ("exact_pieces", "Pieces of an exact search", "GPUs, slices and newcomers together."),
            ("alternatives", "Alternatives of a refusal", "Other windows, classes or slices."),
        ),
    ),
    (
        "Nodes",
        (
            ("silent_after", "Unreachable after", "The node gets no new work."),
            ("heard_again", "Reachable again after", "Reports must arrive without gaps."),
            ("silent_limit", "Move planned work after", "Planned bookings leave the node."),
            ("start_slow", "Slow start after", "The owner is notified."),
            ("unbooked_warn_after", "Warn unbooked processes", "0: never."),
            ("unbooked_end_after", "End unbooked processes", "0: never."),
        ),
    ),
    (
        "Unused bookings",
        (
            ("no_show_after", "End after", "0: never."),
            ("no_show_share", "No-show fee", "Percent of the remaining price."),
            ("idle_after", "Idle after", "0: never. The tier says what happens then."),
            ("idle_below", "Idle below", "Percent of use of each GPU."),
        ),
    ),
    (
        "Requests for approval",
        (
            ("soft_hold", "Keep a place for", "The longest time; then the request waits without."),
            ("soft_margin", "Give it up before its start", "Others can still use it."),
            ("soft_gpus", "Kept for a project", "For all of its requests together."),
            ("soft_borrow", "Kept above a guarantee", "Percent of a class; fixed windows only."),
            ("decision_time", "Time to decide", "Flexible requests are placed later than that."),
        ),
    ),
)
LABELS = {name: label for _, fields in GROUPS for name, label, _ in fields}
