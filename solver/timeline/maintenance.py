"""Maintenance windows of GPUs over time."""

from collections.abc import Container, Iterable, Mapping

from solver.model.inputs import SLOTS_PER_GPU, Maintenance, Place
from solver.timeline.gpu_calendar import GpuCalendar, Window


class MaintenanceCalendar:
    """Maintenance windows by class, without GPUs that the fleet does not have."""

    def __init__(self, blackouts: Iterable[Maintenance], class_of: Mapping[str, str]) -> None:
        self.by_class: dict[str, list[Maintenance]] = {}
        for blackout in blackouts:
            name = class_of.get(blackout.gpu)
            if name is not None:
                self.by_class.setdefault(name, []).append(blackout)

    def add(self, gpu_class: str, calendar: GpuCalendar, gpus: Container[str] | None = None) -> None:
        """Take the whole GPUs of the class, or of `gpus`, whatever runs on them."""
        for blackout in self.by_class.get(gpu_class, ()):
            if gpus is not None and blackout.gpu not in gpus:
                continue
            whole = Place(blackout.gpu, None, 0, SLOTS_PER_GPU)
            calendar.add((whole,), blackout.starts, blackout.ends)

    def outlasting(self, gpu_class: str, begun: int, until: int) -> dict[str, int]:
        """GPUs in maintenance from before `begun` until after `until`, and the end of each."""
        return {
            blackout.gpu: blackout.ends
            for blackout in self.by_class.get(gpu_class, ())
            if blackout.starts < begun and until < blackout.ends
        }

    def away(self, gpu_class: str, window: Window, gpus: Iterable[str] | None = None) -> tuple[int, int]:
        """How many GPUs of the class, or of `gpus`, are in maintenance at some instant of [starts,
        ends), and when the last of those returns (0 for none)."""
        if gpu_class not in self.by_class:
            return 0, 0
        named = None if gpus is None else set(gpus)
        found = [
            blackout
            for blackout in self.by_class.get(gpu_class, ())
            if blackout.starts < window[1]
            and window[0] < blackout.ends
            and (named is None or blackout.gpu in named)
        ]
        gpus_away = len({blackout.gpu for blackout in found})
        return gpus_away, max((blackout.ends for blackout in found), default=0)
