"""What demand adds to the core: its task, metrics and sentences."""

from allocation.features.demand.headroom import headroom_peaks
from allocation.features.demand.later import later_advice
from allocation.features.demand.metrics import demand_metrics
from allocation.features.demand.services import waited_for, wanted_forecasts
from allocation.features.demand.slicing import slices_ahead_on
from allocation.features.demand.tasks import allocation_demand
from allocation.points import (
    CLASS_FORECASTS,
    HOURS_WAITED,
    METRICS,
    PEAK_HOURS,
    QUOTE_ADVICE,
    SLICES_AHEAD,
)
from allocation.words.refusals import sentences_add

__all__ = ["allocation_demand"]
HOURS_WAITED.append(waited_for)
METRICS.append(demand_metrics)
CLASS_FORECASTS.append(wanted_forecasts)
PEAK_HOURS.append(headroom_peaks)
QUOTE_ADVICE.append(later_advice)
SLICES_AHEAD.append(slices_ahead_on)
sentences_add(
    {
        "demand_count": "The class has %(gpus)s GPUs.",
        "own_capacity_leads": "Only leads, heads of labs and admins read what their work waited for.",
    }
)
