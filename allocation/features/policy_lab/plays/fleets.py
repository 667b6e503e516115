"""A fleet that the site does not have: more GPUs of a class, always or in hours of the day (a burst).

They come in whole nodes like the largest one of the class. Limits, guarantees and prices stay, so who is at
a limit waits for it as before. Pure.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from allocation.features.policy_lab.plays.jobs import DAY
from allocation.features.policy_lab.plays.past import History, Planned
from solver import Gpu, Maintenance
from tenants.platform.terms import term, terms

HOUR = 3_600
MOST_GPUS = 512


@terms
class FleetTerms:
    """More GPUs than the site has."""

    gpu_class: str = term("GPU class", says="A class of which the site has GPUs.", max_length=40)
    gpus: int = term("More GPUs", says="So many more of the class.", min_value=1, max_value=MOST_GPUS)
    from_hour: int = term(
        "From hour (UTC)",
        says="A burst: they are there from this hour of each day on, in UTC.",
        default=0,
        min_value=0,
        max_value=23,
    )
    to_hour: int = term(
        "To hour (UTC)",
        says="Until this hour of the day. 24 with 0 before: always.",
        default=24,
        min_value=1,
        max_value=24,
    )


def hours_of_day(fleet: FleetTerms) -> int:
    """The hours of a day in which the GPUs are there; over midnight where they end before they begin."""
    return (fleet.to_hour - fleet.from_hour) % 24 or 24


def fleet_words(fleet: FleetTerms, label: str) -> str:
    """Such as `8 more NVIDIA H100 from 8:00 to 20:00 UTC`."""
    words = f"{fleet.gpus} more {label}"
    if hours_of_day(fleet) == 24:
        return words
    return f"{words} from {fleet.from_hour}:00 to {fleet.to_hour}:00 UTC"


def history_with_gpus(history: History, fleet: FleetTerms) -> History:
    """The same past on a site with more GPUs. Outside their hours they are kept free, as it was known from
    the begin on. A class without GPUs stays without."""
    like = _node_like(history, fleet.gpu_class)
    if not like:
        return history
    site, more, hosts = history.site, [], []
    number = max(gpu.number for gpu in site.gpus) + 1
    host = next((each for each in site.hosts if each.id == like[0].node), None)
    for place in range(fleet.gpus):
        copy, source = divmod(place, len(like))
        more.append(_copied(like[source], f"more-{copy}", number + place))
        if source == 0 and host is not None:
            hosts.append(replace(host, id=f"more-{copy}"))
    away = [Planned(site.now, row) for gpu in more for row in _away(gpu.id, fleet, site.now, history.ends)]
    return replace(
        history,
        site=replace(site, gpus=(*site.gpus, *more), hosts=(*site.hosts, *hosts)),
        maintenance=(*history.maintenance, *away),
    )


def gpu_seconds_of(fleet: FleetTerms, seconds: int) -> int:
    """The time of the GPUs that are added, in a time of so many seconds."""
    return fleet.gpus * seconds * hours_of_day(fleet) // 24


def _node_like(history: History, gpu_class: str) -> list[Gpu]:
    """The GPUs of the class on the node that has the most of them, the first by name."""
    rows = [gpu for gpu in history.site.gpus if gpu.gpu_class == gpu_class]
    sizes = Counter(gpu.node for gpu in rows)
    node = min(sizes, key=lambda name: (-sizes[name], name), default=None)
    return sorted((gpu for gpu in rows if gpu.node == node), key=lambda gpu: gpu.index)


def _copied(gpu: Gpu, node: str, number: int) -> Gpu:
    """A GPU of the same kind in a new node, which has not failed and has no mode yet."""
    return replace(
        gpu,
        id=f"{node}-{gpu.index}",
        number=number,
        node=node,
        usable=True,
        silent=False,
        mode=None,
        stands=None,
        pinned=False,
    )


def _away(gpu: str, fleet: FleetTerms, begins: int, ends: int) -> Iterator[Maintenance]:
    """The times outside its hours."""
    if hours_of_day(fleet) == 24:
        return
    gone = 24 - hours_of_day(fleet)
    for day in range(begins // DAY * DAY - DAY, ends + DAY, DAY):
        starts = day + fleet.to_hour * HOUR
        if starts + gone * HOUR > begins and starts < ends:
            yield Maintenance(gpu, max(begins, starts), starts + gone * HOUR)
