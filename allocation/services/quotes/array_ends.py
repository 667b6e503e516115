"""When the last run of an array ends: an estimate for its quote."""

from datetime import datetime

from allocation.models import Gpu
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.arrays import last_end
from allocation.services.quotes.quote_options import QuoteOption

_UNITS_OF_A_GPU = 56_000


def array_end(option: QuoteOption, count: int, parallel: int) -> datetime:
    """Returns the earliest end of the last run: `parallel` runs at once, or as many as each of its
    classes has GPUs for. Work of others makes it later."""
    units = ask_units(option.ask)
    lanes = parallel
    for name in units if option.ask.groups else (option.gpu_class,):
        needed, rows = units.get(name, 0), Gpu.objects.filter(gpu_class=name, health=Gpu.Health.OK)
        lanes = min(lanes, rows.count() * _UNITS_OF_A_GPU // needed) if needed else lanes
    seconds = int((option.ends - option.starts).total_seconds())
    return last_end(option.starts, seconds, count, max(1, lanes))
