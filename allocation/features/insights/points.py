"""What insights add to the core: sentences, and the overview on the start page."""

from allocation.features.insights import tasks as tasks  # noqa: PLC0414 (registers the task)
from allocation.features.insights.over_time import over_time_card
from allocation.features.insights.overview import sees_overview
from allocation.points import FIGURE_CARDS, HOME_PARTS, HomePart
from allocation.words.refusals import sentences_add

HOME_PARTS.append(HomePart("overview", "overview", "Overview", sees_overview))
FIGURE_CARDS.insert(0, over_time_card)

sentences_add(
    {
        "kpi_period": "Choose 1 to 366 days, and at most 100 steps.",
        "kpi_noun": "Choose %(nouns)s.",
    }
)
