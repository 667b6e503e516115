"""What the portal and the agents on GPU nodes say to each other.

Every message is a frozen dataclass, written as canonical JSON (sorted keys, no spaces, UTF-8,
integers only; times are Unix seconds) and signed with HMAC-SHA256 over exactly those bytes. The
bytes travel next to their signature and are never written again, so both sides sign what is read.

Redis: ``desired_key`` holds one envelope (``Envelope.to_json``), ``wake_channel`` carries hints
without content, ``report_stream`` holds envelopes as fields (``Envelope.to_fields``).
"""

import dataclasses
import functools
import hashlib
import hmac
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

VERSION = 1
MAX_BYTES = 1 << 20
REPORT_STREAM_LENGTH = 1000
_MAX_INT = (1 << 63) - 1
Name = Annotated[str, re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")]
"""Safe as a part of a Redis key and of a path: no slash, no colon, no leading dot."""

Mode = Literal["whole", "sliced"]
AllocationState = Literal["preparing", "ready", "ending", "empty", "failed"]


class WireError(Exception):
    """A message that must not be acted on; `detail` is for logs. `reason` is one of: malformed,
    unknown_version, unknown_kind, unknown_field, unknown_key, bad_mac, too_large."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DesiredAllocation:
    """One allocation on one GPU; `slot` and `size` are memory slots, [`starts`, `ends`) seconds.
    Whole GPU: profile and profile_id are None. A "release" stays until "empty" was reported."""

    id: Name
    booking: Name
    tenant: Name
    owner: str
    profile: str | None
    profile_id: int | None
    slot: int
    size: int
    starts: int
    ends: int
    state: Literal["run", "release"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DesiredGpu:
    uuid: Name
    mode: Mode
    allocations: tuple[DesiredAllocation, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """The whole desired state of one node. (epoch, generation) only ever grows."""

    kind: ClassVar[str] = "desired"
    node: Name
    epoch: int
    generation: int
    gpus: tuple[DesiredGpu, ...] = ()
    version: int = VERSION


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One legal place of one MIG profile; `max` is how many of the profile fit on one GPU."""

    profile: str
    profile_id: int
    start: int
    size: int
    compute: int
    max: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InventoryGpu:
    """`name` is NVML's product name; `nvlink_domain` numbers the node's connected components of
    the NVLink matrix, None without links; `placements` is empty where MIG is impossible."""

    index: int
    uuid: Name
    name: str
    memory_mb: int
    mig_capable: bool
    mode: Mode
    numa: int | None
    pci: str
    nvlink_domain: int | None
    placements: tuple[Placement, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    kind: ClassVar[str] = "inventory"
    hostname: str
    driver: str
    agent: str
    boot: str
    cores: int
    memory_mb: int
    gpus: tuple[InventoryGpu, ...] = ()
    version: int = VERSION


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A MIG instance that is really there. `allocation` is None for one nobody here asked for;
    `uuid` is None while it has no compute instance."""

    profile: str
    profile_id: int
    slot: int
    size: int
    uuid: str | None
    allocation: str | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReportedGpu:
    """`error` says what keeps the GPU from its desired mode, else None."""

    uuid: Name
    mode: Mode
    instances: tuple[Instance, ...] = ()
    error: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReportedAllocation:
    """`devices` are the UUIDs handed over; `since` is when `state` was entered (node's clock)."""

    id: Name
    state: AllocationState
    devices: tuple[str, ...]
    error: str | None
    since: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What is true now. `observed_generation` is that of the document that was acted on. A GPU
    that does not answer is missing from `gpus` and named in `error`."""

    kind: ClassVar[str] = "report"
    epoch: int
    observed_generation: int
    seq: int
    gpus: tuple[ReportedGpu, ...] = ()
    allocations: tuple[ReportedAllocation, ...] = ()
    error: str | None = None
    version: int = VERSION


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    kind: ClassVar[str] = "heartbeat"
    seq: int
    observed_generation: int
    sent_at: int
    version: int = VERSION


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One GPU (slot, size None) or one slice. What can't be measured is None, never 0."""

    gpu: Name
    slot: int | None
    size: int | None
    allocation: str | None
    utilisation: int | None
    memory_used_mb: int | None
    memory_total_mb: int | None
    power_mw: int | None
    temperature_c: int | None
    processes: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    kind: ClassVar[str] = "telemetry"
    sent_at: int
    samples: tuple[Sample, ...] = ()
    version: int = VERSION


FromAgent = Inventory | Report | Heartbeat | Telemetry
Message = Desired | FromAgent


def desired_key(node: str) -> str:
    return f"agent:{node}:desired"


def wake_channel(node: str) -> str:
    return f"agent:{node}:wake"


def report_stream(node: str) -> str:
    return f"agent:{node}:report"


def node_key(master: bytes, node: str, version: int) -> bytes:
    """The 32-byte signing key of one node, so that the portal stores no node's secret."""
    info = f"gpu-portal/node-key/{version}/{node}".encode()
    return hmac.new(master, info, hashlib.sha256).digest()


@dataclasses.dataclass(frozen=True, slots=True)
class Envelope:
    """Message bytes as signed, the version of the key, and the signature in hex."""

    body: bytes
    key_version: int
    mac: str

    def sha256(self) -> str:
        return hashlib.sha256(self.body).hexdigest()

    def to_json(self) -> bytes:
        return _canonical({"body": self.body.decode(), "key": self.key_version, "mac": self.mac})

    @classmethod
    def from_json(cls, raw: bytes) -> "Envelope":
        """Raises WireError: malformed, too_large."""
        # Escaping the body's quotes at most doubles it.
        data = _load(raw, limit=2 * MAX_BYTES + 1024)
        if not isinstance(data, dict) or data.keys() != {"body", "key", "mac"}:
            raise WireError("malformed", "not an envelope")
        if not isinstance(data["body"], str) or type(data["key"]) is not int:
            raise WireError("malformed", "not an envelope")
        return cls(_as_bytes(data["body"]), data["key"], str(data["mac"]))

    def to_fields(self) -> dict[str, bytes | str]:
        """For XADD."""
        return {"body": self.body, "key": str(self.key_version), "mac": self.mac}

    @classmethod
    def from_fields(cls, fields: Mapping[Any, Any]) -> "Envelope":
        """From a stream entry, in bytes or text. Raises WireError: malformed."""
        plain = {_as_bytes(name): _as_bytes(value) for name, value in fields.items()}
        if plain.keys() != {b"body", b"key", b"mac"}:
            raise WireError("malformed", "not an envelope")
        if not re.fullmatch(rb"[0-9]{1,9}", plain[b"key"]) or not plain[b"mac"].isascii():
            raise WireError("malformed", "not an envelope")
        return cls(plain[b"body"], int(plain[b"key"]), plain[b"mac"].decode())


def seal(message: Message, *, key: bytes, key_version: int) -> Envelope:
    """Writes a message once and signs those bytes. Raises WireError: too_large."""
    body = _canonical({"kind": message.kind, **dataclasses.asdict(message)})
    if len(body) > MAX_BYTES:
        raise WireError("too_large", f"{len(body)} bytes")
    return Envelope(body, key_version, _mac(body, key))


def open_desired(envelope: Envelope, keys: Mapping[int, bytes]) -> Desired:
    """Checks the signature with the key of the envelope's version, then reads. Raises WireError."""
    return typing.cast(Desired, _open(envelope, keys, [Desired]))


def open_report(envelope: Envelope, keys: Mapping[int, bytes]) -> FromAgent:
    """As open_desired, for what agents send. Raises WireError."""
    return typing.cast(FromAgent, _open(envelope, keys, typing.get_args(FromAgent)))


def inventory_to_plain(inventory: Inventory) -> dict[str, Any]:
    """JSON-ready values for the enrolment request, which no key signs yet."""
    return dataclasses.asdict(inventory)


def inventory_from_plain(data: object) -> Inventory:
    """Reads what inventory_to_plain wrote. Raises WireError."""
    return typing.cast(Inventory, _build(Inventory, data, Inventory.kind))


def _open(envelope: Envelope, keys: Mapping[int, bytes], kinds: Iterable[Any]) -> object:
    if len(envelope.body) > MAX_BYTES:
        raise WireError("too_large", f"{len(envelope.body)} bytes")
    key = keys.get(envelope.key_version)
    if key is None:
        raise WireError("unknown_key", f"version {envelope.key_version}")
    if not hmac.compare_digest(_mac(envelope.body, key).encode(), _as_bytes(envelope.mac)):
        raise WireError("bad_mac")
    data = _load(envelope.body, limit=MAX_BYTES)
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
        raise WireError("malformed", "no kind")
    if type(data.get("version")) is not int or data["version"] != VERSION:
        raise WireError("unknown_version", repr(data.get("version")))
    kind = data.pop("kind")
    for cls in kinds:
        if cls.kind == kind:
            return _build(cls, data, kind)
    raise WireError("unknown_kind", kind)


def _mac(body: bytes, key: bytes) -> str:
    return hmac.new(key, body, hashlib.sha256).hexdigest()


def _as_bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return str(value).encode()
    except UnicodeEncodeError as error:
        raise WireError("malformed", "not UTF-8") from error


def _canonical(data: object) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _load(raw: bytes, *, limit: int) -> object:
    if len(raw) > limit:
        raise WireError("too_large", f"{len(raw)} bytes")
    hooks: dict[str, Any] = {"parse_float": _no_float, "parse_constant": _no_float}
    try:
        return json.loads(raw.decode(), object_pairs_hook=_unique, **hooks)
    except (ValueError, RecursionError) as error:
        raise WireError("malformed", str(error)) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name twice in one object")
    return found


def _no_float(text: str) -> object:
    raise ValueError(f"{text} is not an integer")


@functools.cache
def _shape(cls: "type[Any]") -> tuple[dict[str, Any], frozenset[str]]:
    """Field annotations by name, and the names that have no default."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = dataclasses.fields(cls)
    needed = frozenset(f.name for f in fields if f.default is dataclasses.MISSING)
    return {field.name: hints[field.name] for field in fields}, needed


def _build(cls: Callable[..., object], data: object, where: str) -> object:
    if not isinstance(data, dict):
        raise WireError("malformed", f"{where} is not an object")
    hints, needed = _shape(cls)
    if not data.keys() <= hints.keys():
        raise WireError("unknown_field", f"{where}: {sorted(data.keys() - hints.keys())}")
    if not needed <= data.keys():
        raise WireError("malformed", f"{where} lacks {sorted(needed - data.keys())}")
    return cls(**{name: _value(hints[name], data[name], f"{where}.{name}") for name in data})


def _value(hint: object, value: object, where: str) -> object:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (arm for arm in typing.get_args(hint) if arm is not types.NoneType)
        return None if value is None else _value(inner, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise WireError("malformed", f"{where} is not a list")
        item = typing.get_args(hint)[0]
        return tuple(_value(item, each, f"{where}[{i}]") for i, each in enumerate(value))
    if dataclasses.is_dataclass(hint):
        return _build(typing.cast(Callable[..., object], hint), value, where)
    if not _fits(hint, origin, value):
        raise WireError("malformed", f"{where} has a wrong value")
    return value


def _fits(hint: object, origin: object, value: object) -> bool:
    if origin is Literal:
        return isinstance(value, str) and value in typing.get_args(hint)
    if origin is Annotated:
        pattern = typing.get_args(hint)[1]
        return isinstance(value, str) and pattern.fullmatch(value) is not None
    return type(value) is hint and (not isinstance(value, int) or abs(value) <= _MAX_INT)
