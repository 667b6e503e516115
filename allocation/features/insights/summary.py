"""What the GPUs did in some days, in a few sentences for a mail."""

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

from allocation.features.insights.figures import Figures, Whose, figures_of, sum_of
from allocation.web.parts.times import length_words
from billing.rules import Period


def summary_sentences(whose: Whose, days: Period) -> Iterator[str]:
    """Yields sentences about days that are over. What is not measured is said as not measured."""
    total, before = _total(whose, days), _total(whose, _before(days))
    if not total.gpu_hours:
        yield "No GPU was booked in this time."
        return
    yield f"GPUs were booked for {total.gpu_hours:,.1f} hours{_change(total.gpu_hours, before.gpu_hours)}."
    if not total.is_enough or total.utilisation is None:
        yield "Too little of their use was measured to say how busy they were."
    else:
        unused = 100 * total.unused_gpu_hours / total.measured_gpu_hours
        yield (
            f"They were {total.utilisation:.0f} % busy, and idle for {unused:.0f} % of the measured hours"
            f" ({total.coverage:.0f} % of all)."
        )
        if total.dark_gpu_hours:
            yield f"For {total.dark_gpu_hours:,.1f} of the idle hours somebody waited for the class."
    if total.energy_gpu_hours:
        yield f"They used {total.kwh:,.1f} kWh in {total.energy_gpu_hours:,.1f} measured GPU-hours."
    if total.wait_p50_seconds is not None and total.wait_p95_seconds is not None:
        yield (
            f"Half of those that began ({total.began}) waited at most {_length(total.wait_p50_seconds)},"
            f" and 19 of 20 at most {_length(total.wait_p95_seconds)}."
        )
    if total.pauses:
        yield f"Pauses: {total.pauses}, with {total.lost_hours:,.1f} hours of work repeated."


def _total(whose: Whose, days: Period) -> Figures:
    return sum_of(figures_of(whose, days, "class", "all", days.last_second).values())


def _before(days: Period) -> Period:
    """The month before a month, else as many days."""
    if days.starts.day == days.ends.day == 1:
        return Period((days.starts - timedelta(days=1)).replace(day=1), days.starts)
    return Period(days.starts - (days.ends - days.starts), days.starts)


def _change(now: Decimal, before: Decimal) -> str:
    return f", {100 * (now / before - 1):+.0f} % against the time before" if before else ""


def _length(seconds: int) -> str:
    return length_words(seconds) if seconds else "0 min"
