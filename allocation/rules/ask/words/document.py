"""The structured form of a request, as REST accepts it and as a booking stores it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, cast

from allocation.errors import AskError
from tenants.platform.coded import coded

Together = Literal["gpu", "domain", "node", "rack", "any"]

TOGETHER: tuple[Together, ...] = ("gpu", "domain", "node", "rack", "any")
MAX_COUNT = 512
MAX_CLASSES = 16
WHOLE_SHARE = 1_000
MAX_HOST_RESOURCE = 16_384
MAX_NAME_LENGTH = 64
MAX_PINS = 16
MAX_ZONES = 16
MAX_SCRATCH_GB = 1_000_000
MAX_DATA = 8
MIN_GROUPS, MAX_GROUPS = 2, 4
# Shorter bookings are refused, and a shorter remainder of a paused run does not resume.
MIN_DURATION_SECONDS = 60
MAX_DURATION_SECONDS = 90 * 86_400
# Beyond these nothing is asked; between, the rules of a project say what would work.
MOST_SAID, LONGEST_SAID = 100_000, 366 * 86_400

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_DURATION = re.compile(
    r"P(?:(\d{1,4})W)?(?:(\d{1,4})D)?(?:T(?:(\d{1,5})H)?(?:(\d{1,6})M)?(?:(\d{1,8})S)?)?", re.ASCII
)
_SECONDS = (604_800, 86_400, 3_600, 60, 1)
_YEARS = range(2000, 2200)
_DATA = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
_COST = re.compile(r"[0-9]{1,7}(\.[0-9]{1,2})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class AskGroup:
    """One group of a mixed request: a number of GPUs or slices of one class."""

    gpu_class: str
    count: int = 1
    profile: str | None = None
    cores: int = 0
    memory: int = 0
    together: Together = "any"
    required: bool = False


STORAGE = ("local", "shared")
"""Storage that a request can demand of its nodes."""

GROUP_FIELDS = ("count", "profile", "cores", "memory", "together", "required")
"""The fields that each group of a mixed request has for itself, besides its class."""


@dataclass(frozen=True, slots=True)
class AskDocument:
    """A request: a number of GPUs, slices or a share, their classes, and a window.

    `classes` are alternatives. `share` is in thousandths of one GPU and not isolated from other
    shares. Each device comes with `cores` and `memory` (GiB) of its node. `together` is the
    required or preferred distance of the devices. `duration` is in seconds; times are aware UTC in
    whole seconds. With `starts` the window is fixed; otherwise it is flexible between `not_before`
    and `deadline`. With a `workload` (a kind of work) the duration applies to the first class and
    is scaled by speed for the others. `pin` limits the booking to these nodes, by name, and GPUs,
    as `node/index`. A mixed request has further `groups`, each on a class of its own; the fields
    `count`, `classes`, `profile`, `cores`, `memory`, `together` and `required` are of the first.
    With `most_cost` machines may be rented for it for so much, if it would wait. It runs in one of
    `zones`, if any, and in none of `not_zones`, on nodes with this `storage` and at least `scratch` GB
    of local space. Nodes that have its `data`, sets of the nodes' cache folders, are preferred. With
    `host` it counts cores of hosts and no GPUs.
    """

    count: int
    classes: tuple[str, ...]
    profile: str | None
    together: Together
    required: bool
    duration: int
    starts: datetime | None = None
    not_before: datetime | None = None
    deadline: datetime | None = None
    share: int | None = None
    cores: int = 0
    memory: int = 0
    workload: str | None = None
    pin: tuple[str, ...] = ()
    groups: tuple[AskGroup, ...] = ()
    most_cost: Decimal | None = None
    zones: tuple[str, ...] = ()
    not_zones: tuple[str, ...] = ()
    storage: str | None = None
    scratch: int = 0
    data: tuple[str, ...] = ()
    host: bool = False

    @property
    def may_burst(self) -> bool:
        """Whether machines may be rented for it, for at most `most_cost`."""
        return self.most_cost is not None

    @property
    def where_fields(self) -> dict[str, Any]:
        """The fields that say on which nodes it may run, besides its pin."""
        return {name: getattr(self, name) for name in ("zones", "not_zones", "storage", "scratch")}

    @property
    def is_bound(self) -> bool:
        """Whether some nodes are not for it: by its pin, zones or storage."""
        return bool(self.pin) or any(self.where_fields.values())

    @property
    def every_group(self) -> tuple[AskGroup, ...]:
        """All groups of a mixed request; empty for any other."""
        if not self.groups:
            return ()
        first = {name: getattr(self, name) for name in GROUP_FIELDS}
        return (AskGroup(gpu_class=self.classes[0], **first), *self.groups)

    @property
    def all_classes(self) -> tuple[str, ...]:
        """Its classes: alternatives, or those of all groups."""
        return (*self.classes, *(each.gpu_class for each in self.groups))

    @property
    def total(self) -> int:
        """The number of GPUs, slices or shares of all groups."""
        return self.count + sum(each.count for each in self.groups)

    @property
    def parts(self) -> tuple["AskDocument", ...]:
        """Each group as a request of its own; itself unless it is mixed."""
        if not self.groups:
            return (self,)
        rows = ({name: getattr(each, name) for name in GROUP_FIELDS} for each in self.every_group)
        return tuple(
            replace(self, classes=(each.gpu_class,), groups=(), **row)
            for each, row in zip(self.every_group, rows, strict=True)
        )

    def on(self, gpu_class: str) -> "AskDocument":
        """The group on a class as a request of its own; itself unless it is mixed."""
        own = (part for part in self.parts if part.classes == (gpu_class,))
        return next(own, self) if self.groups else self

    @property
    def shape(self) -> str | int | None:
        """The profile of a slice, the thousandths of a share, or None for whole GPUs."""
        return self.profile if self.share is None else self.share

    @classmethod
    def from_json(cls, data: object) -> "AskDocument":
        """Reads the JSON form. Raises AskError for unknown, missing and invalid fields."""
        if not isinstance(data, Mapping):
            raise AskError("not_an_object", coded("ask_object"), "ask")
        for name in data:
            if name not in _READERS and name not in ("may_burst", "most_cost"):
                raise AskError("unknown_field", coded("ask_field"), str(name)[:64])
        data = _with_first_group(data)
        most_cost, data = _burst_read(data)
        for name in ("classes", "duration"):
            if name not in data:
                raise AskError("missing_field", coded("ask_required", name=name), name)
        values: dict[str, Any] = {"count": 1, "profile": None, "together": "any", "required": False}
        values |= {name: _READERS[name](value, name) for name, value in data.items()}
        document = cls(**values, most_cost=most_cost)
        document.check()
        return document

    def check(self) -> None:
        """Raises AskError for fields that contradict each other."""
        self.check_share()
        self.check_window()
        self.check_where()

    def check_where(self) -> None:
        """Raises AskError for a zone that is named and excluded, and for local space on shared storage."""
        if both := sorted({*self.zones} & {*self.not_zones}):
            raise AskError("zone_excluded", coded("ask_zone_both", zone=both[0]), "not_zones")
        if self.scratch and self.storage == "shared":
            raise AskError("scratch_is_local", coded("ask_scratch_local"), "storage", {"storage": "local"})

    def check_share(self) -> None:
        """Raises AskError for a share of several GPUs or of a slice."""
        if self.share is not None and (self.count != 1 or self.profile is not None):
            why = coded("ask_share_of_one")
            raise AskError("share_of_one", why, "share", {"count": 1, "profile": None})

    def check_window(self) -> None:
        """Raises AskError for a contradictory window."""
        flexible = self.not_before is not None or self.deadline is not None
        if self.starts is not None and flexible:
            why = coded("ask_starts_twice")
            raise AskError("window_twice", why, "starts")
        if self.deadline is None or self.not_before is None:
            return
        if self.deadline < self.not_before + timedelta(seconds=self.duration):
            why = coded("ask_deadline_unreachable")
            raise AskError("deadline_unreachable", why, "deadline")

    def to_json(self) -> dict[str, Any]:
        """The canonical JSON form. `from_json` returns the same document."""
        names = (each.name for each in fields(self) if each.name not in _LEFT_OUT)
        plain = {name: getattr(self, name) for name in names}
        plain["classes"] = list(self.classes)
        for name in ("starts", "not_before", "deadline"):
            plain[name] = None if plain[name] is None else time_text(plain[name])
        # Left out when empty, as in documents stored before these existed.
        plain |= {name: list(value) for name in _NAMES if (value := getattr(self, name))}
        plain |= {name: value for name in ("storage", "scratch", "host") if (value := getattr(self, name))}
        if self.groups:
            plain["groups"] = [asdict(each) for each in self.every_group]
        if self.most_cost is not None:
            plain |= {"may_burst": True, "most_cost": format(self.most_cost, "f")}
        return plain


_NAMES = ("pin", "zones", "not_zones", "data")
_LEFT_OUT = frozenset({*_NAMES, "storage", "scratch", "host", "groups", "most_cost"})


def classes_asked(ask: Mapping[str, Any]) -> list[str]:
    """The classes of a stored request: alternatives, or those of all groups."""
    groups = ask.get("groups")
    return [each["gpu_class"] for each in groups] if groups else list(ask["classes"])


def count_asked(ask: Mapping[str, Any]) -> int:
    """The number of GPUs, slices or shares of a stored request, of all groups together."""
    return sum(each["count"] for each in ask.get("groups") or [ask])


def _with_first_group(data: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """The fields of a mixed request, with those of its first group. Raises AskError."""
    if data.get("groups") is None:
        return {name: value for name, value in data.items() if name != "groups"}
    first, *others = groups_of(data["groups"])
    row = {**asdict(first), "classes": [first.gpu_class]}
    del row["gpu_class"]
    for name, value in row.items():
        if name in data and data[name] != value:
            why = coded("ask_field_of_group", name=name)
            raise AskError("groups_twice", why, name)
    for name in ("share", "workload", "pin"):
        if data.get(name):
            why = coded("ask_field_not_in_groups", name=name)
            raise AskError("not_in_groups", why, name)
    return {**data, **row, "groups": others}


def cost_of(value: object) -> Decimal:
    """An amount with at most two places, above 0. Raises AskError."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not _COST.fullmatch(text) or not Decimal(text):
        raise AskError("bad_amount", coded("ask_most_cost"), "most_cost")
    return Decimal(text)


def _burst_read(data: Mapping[Any, Any]) -> tuple[Decimal | None, Mapping[Any, Any]]:
    """What machines may cost that are rented for it, and the other fields. Raises AskError."""
    rest = {name: value for name, value in data.items() if name not in ("may_burst", "most_cost")}
    may, most = data.get("may_burst", False), data.get("most_cost")
    if not isinstance(may, bool):
        raise AskError("not_a_truth", coded("ask_may_burst"), "may_burst")
    if not may and most is None:
        return None, rest
    if not may or most is None:
        raise AskError("missing_field", coded("ask_may_burst"), "most_cost" if may else "may_burst")
    return cost_of(most), rest


def time_text(moment: datetime) -> str:
    """RFC 3339 in UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def count_of(value: object, param: str = "count") -> int:
    """A count within bounds. Raises AskError otherwise."""
    number = _whole(value, param)
    if not 1 <= number <= MAX_COUNT:
        why = coded("ask_count", max_count=MAX_COUNT)
        raise AskError("count_out_of_bounds", why, param, {"count": max(1, min(number, MAX_COUNT))})
    return number


def duration_of(value: object, param: str = "duration") -> int:
    """Seconds, from whole seconds or ISO 8601 (`PT6H`). Raises AskError otherwise."""
    seconds = seconds_said(value, param)
    if not MIN_DURATION_SECONDS <= seconds <= MAX_DURATION_SECONDS:
        why = coded("ask_duration_bounds")
        nearest = max(MIN_DURATION_SECONDS, min(seconds, MAX_DURATION_SECONDS))
        raise AskError("duration_out_of_bounds", why, param, {"duration": nearest})
    return seconds


def seconds_said(value: object, param: str = "duration") -> int:
    """The seconds of a duration, however long. Raises AskError if it is none."""
    return _iso_seconds(value, param) if isinstance(value, str) else _whole(value, param)


def _iso_seconds(value: str, param: str) -> int:
    found = _DURATION.fullmatch(value)
    if found is None or not any(found.groups()) or value.endswith("T"):
        why = coded("ask_duration_form")
        raise AskError("not_a_duration", why, param)
    amounts = (int(amount or 0) for amount in found.groups())
    return sum(amount * each for amount, each in zip(amounts, _SECONDS, strict=True))


def _whole(value: object, param: str) -> int:
    if type(value) is not int:
        raise AskError("not_a_whole_number", coded("ask_whole", param=param), param)
    return value


def share_of(value: object, param: str = "share") -> int | None:
    """Thousandths of a GPU. Raises AskError if out of bounds."""
    if value is None:
        return None
    share = _whole(value, param)
    if not 1 <= share < WHOLE_SHARE:
        why = coded("ask_share_bounds")
        raise AskError("share_out_of_bounds", why, param)
    return share


def host_resource_of(value: object, param: str) -> int:
    """Host cores, or memory in GiB. Raises AskError if out of bounds."""
    amount = _whole(value, param)
    if not 0 <= amount <= MAX_HOST_RESOURCE:
        raise AskError(
            "out_of_bounds",
            coded("ask_host_bounds", param=param, max_host_resource=MAX_HOST_RESOURCE),
            param,
        )
    return amount


def _name(value: object, param: str) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_NAME_LENGTH or not value.isprintable():
        why = coded("ask_name", param=param, max_name_length=MAX_NAME_LENGTH)
        raise AskError("not_a_name", why, param)
    return value


def _name_or_none(value: object, param: str) -> str | None:
    return None if value is None else _name(value, param)


def _classes(value: object, param: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_CLASSES:
        why = coded("ask_classes", max_classes=MAX_CLASSES)
        raise AskError("not_a_list", why, param)
    names = tuple(_name(each, param) for each in value)
    if len(set(names)) != len(names):
        raise AskError("class_twice", coded("ask_classes_once"), param)
    return names


def pin_of(value: object, param: str = "pin") -> tuple[str, ...]:
    """Names of nodes and GPUs, sorted and unique. Raises AskError for too many or invalid names."""
    if not isinstance(value, list | tuple) or len(value) > MAX_PINS:
        why = coded("ask_pins", param=param, max_pins=MAX_PINS)
        raise AskError("not_a_list", why, param)
    return tuple(sorted({_name(each, param) for each in value}))


def zones_of(value: object, param: str) -> tuple[str, ...]:
    """Zones, sorted and unique. Raises AskError for too many or invalid names."""
    if not isinstance(value, list | tuple) or len(value) > MAX_ZONES:
        raise AskError("not_a_list", coded("ask_zones", param=param, max_zones=MAX_ZONES), param)
    return tuple(sorted({_name(each, param) for each in value}))


def storage_of(value: object, param: str = "storage") -> str | None:
    """The storage that nodes must have; None: any. Raises AskError."""
    if value is None or value in STORAGE:
        return value
    raise AskError("not_a_choice", coded("ask_together", param=param, choices=", ".join(STORAGE)), param)


def scratch_of(value: object, param: str = "scratch") -> int:
    """GB of local space that nodes must have. Raises AskError if out of bounds."""
    amount = _whole(value, param)
    if not 0 <= amount <= MAX_SCRATCH_GB:
        why = coded("ask_host_bounds", param=param, max_host_resource=MAX_SCRATCH_GB)
        raise AskError("out_of_bounds", why, param, {param: max(0, min(amount, MAX_SCRATCH_GB))})
    return amount


def data_of(value: object, param: str = "data") -> tuple[str, ...]:
    """Names of data sets, sorted and unique. Raises AskError for too many or invalid names."""
    if not isinstance(value, list | tuple) or len(value) > MAX_DATA:
        raise AskError("not_a_list", coded("ask_data", param=param, max_data=MAX_DATA), param)
    for each in value:
        if not isinstance(each, str) or not _DATA.fullmatch(each):
            raise AskError("not_a_name", coded("ask_data_name", param=param), param)
    return tuple(sorted(set(value)))


def _together(value: object, param: str) -> Together:
    if not isinstance(value, str) or value not in TOGETHER:
        raise AskError("not_a_choice", coded("ask_together", param=param, choices=", ".join(TOGETHER)), param)
    return value


def _truth(value: object, param: str) -> bool:
    if not isinstance(value, bool):
        raise AskError("not_true_or_false", coded("ask_flag", param=param), param)
    return value


def _time_or_none(value: object, param: str) -> datetime | None:
    if value is None:
        return None
    why = coded("ask_instant", param=param)
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise AskError("not_a_time", why, param)
    try:
        moment = datetime.fromisoformat(value.upper())
    except ValueError:
        raise AskError("not_a_time", why, param) from None
    if moment.year not in _YEARS:
        why = coded("ask_years", param=param, first=_YEARS[0], last=_YEARS[-1])
        raise AskError("time_out_of_bounds", why, param)
    return moment.astimezone(UTC)


_GROUP_READERS: dict[str, Callable[[object, str], object]] = {
    "gpu_class": _name,
    "count": count_of,
    "profile": _name_or_none,
    "cores": host_resource_of,
    "memory": host_resource_of,
    "together": _together,
    "required": _truth,
}


def groups_of(value: object, param: str = "groups") -> list[AskGroup]:
    """The groups of a mixed request. Raises AskError for one group, too many, a class that has two,
    or an invalid field."""
    if not isinstance(value, list) or not MIN_GROUPS <= len(value) <= MAX_GROUPS:
        why = coded("ask_groups", param=param, min_groups=MIN_GROUPS, max_groups=MAX_GROUPS)
        raise AskError("not_a_list", why, param)
    found = [_group(each, f"{param}.{number}") for number, each in enumerate(value)]
    if len({each.gpu_class for each in found}) < len(found):
        why = coded("ask_groups_once")
        raise AskError("class_twice", why, param)
    return found


def _group(value: object, param: str) -> AskGroup:
    if not isinstance(value, Mapping) or "gpu_class" not in value:
        raise AskError("missing_field", coded("ask_group_needs_class"), f"{param}.gpu_class")
    for name in value:
        if name not in _GROUP_READERS:
            raise AskError("unknown_field", coded("ask_field"), f"{param}.{str(name)[:64]}")
    try:
        row = {name: _GROUP_READERS[name](each, f"{param}.{name}") for name, each in value.items()}
    except AskError as error:
        # The nearest value is one of this group, and not of the request.
        raise AskError(error.code, error.text, error.param) from error
    return AskGroup(**cast(dict[str, Any], row))


_READERS: dict[str, Callable[[object, str], object]] = {
    "count": count_of,
    "classes": _classes,
    "profile": _name_or_none,
    "together": _together,
    "required": _truth,
    "duration": duration_of,
    "starts": _time_or_none,
    "not_before": _time_or_none,
    "deadline": _time_or_none,
    "share": share_of,
    "cores": host_resource_of,
    "memory": host_resource_of,
    "workload": _name_or_none,
    "pin": pin_of,
    "zones": zones_of,
    "not_zones": zones_of,
    "storage": storage_of,
    "scratch": scratch_of,
    "data": data_of,
    "host": _truth,
    "groups": lambda value, _: tuple(cast(list[AskGroup], value)),
}
