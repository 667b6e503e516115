"""The questions of the policy's page: what most sites decide, in words, and presets for kinds of sites."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from allocation.services.policy.policies import PolicyValue

HOUR, DAY = 3_600, 86_400


@dataclass(frozen=True, slots=True)
class Question:
    """A question about one parameter: how it is asked, and what more or less of it does."""

    name: str
    text: str
    effect: str


QUESTIONS: tuple[tuple[str, tuple[Question, ...]], ...] = (
    (
        "Who goes first",
        (
            Question(
                "order",
                "Order of waiting bookings",
                "What stands first decides first; the next one only where two bookings are equal in it."
                " Guarantees and organisations’ limits come before all of it.",
            ),
            Question(
                "patience",
                "Goes before all borrowers after a wait of",
                "Shorter: nobody waits long behind borrowers. Longer: free GPUs are lent more freely.",
            ),
            Question(
                "half_life",
                "Past use counts half after",
                "Shorter: who used much yesterday is equal again soon. Longer: shares even out over weeks.",
            ),
        ),
    ),
    (
        "Pauses and loans",
        (
            Question(
                "victim_rules",
                "What may pause a running booking",
                "Only bookings in tiers that can be paused. Nothing ticked: nobody is ever paused.",
            ),
            Question(
                "cool_down",
                "Safe from pauses after a resume for",
                "Longer: fewer pauses of the same work. Shorter: urgent work starts sooner.",
            ),
            Question(
                "borrow_windows",
                "Longest run on borrowed GPUs, if never paused",
                "By tier, such as standard 4h, or none. Longer: fewer idle GPUs, and longer waits of owners.",
            ),
        ),
    ),
    (
        "Bookings that nobody uses",
        (
            Question(
                "no_show_after",
                "An unused booking ends after",
                "Shorter: GPUs are free again sooner. 0: never; people may come late.",
            ),
            Question("no_show_share", "No-show fee, % of the unused rest", "0: nothing."),
            Question(
                "idle_after",
                "A GPU without work counts as idle after",
                "The tier says what happens then: a notice, a pause or the end. 0: never.",
            ),
            Question(
                "idle_below",
                "No work is use below, %",
                "Higher finds more idle GPUs, and takes slow input for idleness.",
            ),
        ),
    ),
    (
        "Plans and sharing",
        (
            Question(
                "freeze_horizon",
                "A planned start is fixed this long before",
                "Longer: people can rely on it. Shorter: the plan uses GPUs better.",
            ),
            Question(
                "grid",
                "Bookings start at steps of",
                "Smaller steps waste less time; larger ones make a calendar that people read easily.",
            ),
            Question(
                "share_owners",
                "Owners that may share one GPU",
                "1: a GPU belongs to one owner at a time. More: teaching and notebooks fit on few GPUs, and"
                " owners are not isolated from each other.",
            ),
            Question(
                "soft_hold",
                "A place is kept for an approval for",
                "Longer: approvers have time. Shorter: others use the GPUs meanwhile.",
            ),
        ),
    ),
)
ASKED = frozenset(question.name for _, group in QUESTIONS for question in group)

ORDER_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "tier": "Priority of the tier",
        "part": "Own guarantee before borrowed GPUs",
        "tenant": "Organisation that has used less of its share",
        "project": "Project that has used less of its share",
        "person": "Person who has used less",
        "age": "Booking that has waited longer",
    }
)
PAUSE_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "taken_back": "An owner needs guaranteed GPUs that were lent",
        "own_part": "A project needs its own part of the guarantee",
        "higher_tier": "A booking in a tier with a higher priority",
        "fairer_share": "Somebody who has used much less",
    }
)


@dataclass(frozen=True, slots=True)
class Preset:
    """Values for a kind of site; what they leave out is as by default."""

    name: str
    label: str
    about: str
    document: Mapping[str, PolicyValue]


PRESETS = (
    Preset(
        "lab",
        "Research lab",
        "One group of people who know each other: long runs, few pauses, a start that is announced stays.",
        {
            "patience": DAY,
            "half_life": 14 * DAY,
            "freeze_horizon": HOUR,
            "cool_down": 4 * HOUR,
            "victim_rules": ("taken_back", "own_part", "higher_tier"),
            "no_show_share": 0,
            "idle_after": 2 * HOUR,
        },
    ),
    Preset(
        "shared",
        "Shared cluster",
        "Organisations with guarantees that lend to each other: the defaults, with fees for no-shows.",
        {},
    ),
    Preset(
        "teaching",
        "Teaching",
        "Many people with short bookings: everybody gets a turn, GPUs are shared, and nothing stays unused.",
        {
            "order": ("tier", "person", "part", "tenant", "project", "age"),
            "half_life": DAY,
            "patience": 2 * HOUR,
            "share_owners": 8,
            "no_show_after": 600,
            "no_show_share": 0,
            "idle_after": 1_200,
            "soft_hold": HOUR,
        },
    ),
)


def preset_named(name: str) -> Preset | None:
    """The preset; None for another name."""
    return next((each for each in PRESETS if each.name == name), None)
