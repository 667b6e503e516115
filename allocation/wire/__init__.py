"""What the portal and the agents on GPU nodes say to each other.

Every message is a frozen dataclass, written as canonical JSON (sorted keys, no spaces, UTF-8,
integers only; times are Unix seconds) and signed with HMAC-SHA256 over exactly those bytes. The
bytes travel next to their signature and are never written again, so both sides sign what is read.

Fields marked `_LATER` were added to version 1. They are left out where they say nothing, and
written only for agents from `LATER_SINCE` on, because an older agent refuses a whole document with
a field that it does not know: it goes on with the one before, and says so in its reports. So the
portal is upgraded first, then the agents.

A node's key is changed without ever being sent in clear, nor by anyone who does not hold the old
one: the document, signed with the old key, carries the new one under a pad that both sides derive
from the old key for this version and node alone (`key_hide`, `key_show`). The new key itself
comes from the master key, so knowing the old one is of no use to somebody who did not see that
document. The agent keeps both and signs with the new one from then on; the portal accepts both
until it sees that, then signs with the new one too and forgets the old one, as does the agent.

Redis: ``desired_key`` holds one envelope (``Envelope.to_json``), ``wake_channel`` carries hints
without content, ``report_stream`` holds envelopes as fields (``Envelope.to_fields``).
"""

import dataclasses
import hashlib
import hmac
import json
import re
import typing
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from allocation.wire import strict
from allocation.wire.strict import as_bytes, build, load

VERSION = 1
LATER_SINCE = (0, 2)
_LATER = {"later": True}
MAX_BYTES = 1 << 20
REPORT_STREAM_LENGTH = 1000
Name = Annotated[str, re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")]
"""Safe as a part of a Redis key and of a path: no slash, no colon, no leading dot."""

Mode = Literal["whole", "sliced"]
AllocationState = Literal["preparing", "ready", "ending", "empty", "failed"]
WireError = strict.WireError


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
class Member:
    """One node's part of a booking: how many GPUs or slices of it lie there."""

    node: Name
    devices: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A booking that lies on several nodes; `members` in the order of their ranks, the same on
    every node and for as long as the booking runs."""

    tenant: Name
    booking: Name
    members: tuple[Member, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """The node's key of a coming version, hidden under the key that signs this document, in hex."""

    version: int
    hidden: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """The whole desired state of one node. (epoch, generation) only ever grows."""

    kind: ClassVar[str] = "desired"
    node: Name
    epoch: int
    generation: int
    gpus: tuple[DesiredGpu, ...] = ()
    gangs: tuple[Gang, ...] = dataclasses.field(default=(), metadata=_LATER)
    rotation: Rotation | None = dataclasses.field(default=None, metadata=_LATER)
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


def key_hide(*, old: bytes, new: bytes, node: str, version: int) -> str:
    """`new`, the node's 32-byte key of `version`, as only a holder of `old` can read it; hex."""
    return _padded(new, old, node, version).hex()


def key_show(*, old: bytes, hidden: str, node: str, version: int) -> bytes:
    """What key_hide hid. Raises WireError: malformed."""
    if not re.fullmatch(r"[0-9a-f]{64}", hidden):
        raise WireError("malformed", "not a hidden key")
    return _padded(bytes.fromhex(hidden), old, node, version)


def _padded(text: bytes, old: bytes, node: str, version: int) -> bytes:
    """The pad is a pseudo-random value that is used for one 32-byte key and never again."""
    pad = hmac.new(old, f"gpu-portal/hidden-key/{version}/{node}".encode(), hashlib.sha256).digest()
    return bytes(one ^ other for one, other in zip(text, pad, strict=True))


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
        data = load(raw, limit=2 * MAX_BYTES + 1024)
        if not isinstance(data, dict) or data.keys() != {"body", "key", "mac"}:
            raise WireError("malformed", "not an envelope")
        if not isinstance(data["body"], str) or type(data["key"]) is not int:
            raise WireError("malformed", "not an envelope")
        return cls(as_bytes(data["body"]), data["key"], str(data["mac"]))

    def to_fields(self) -> dict[str, bytes | str]:
        """For XADD."""
        return {"body": self.body, "key": str(self.key_version), "mac": self.mac}

    @classmethod
    def from_fields(cls, fields: Mapping[Any, Any]) -> "Envelope":
        """From a stream entry, in bytes or text. Raises WireError: malformed."""
        plain = {as_bytes(name): as_bytes(value) for name, value in fields.items()}
        if plain.keys() != {b"body", b"key", b"mac"}:
            raise WireError("malformed", "not an envelope")
        if not re.fullmatch(rb"[0-9]{1,9}", plain[b"key"]) or not plain[b"mac"].isascii():
            raise WireError("malformed", "not an envelope")
        return cls(plain[b"body"], int(plain[b"key"]), plain[b"mac"].decode())


def seal(message: Message, *, key: bytes, key_version: int) -> Envelope:
    """Writes a message once and signs those bytes. Raises WireError: too_large."""
    data = {"kind": message.kind, **dataclasses.asdict(message)}
    for field in dataclasses.fields(message):
        if "later" in field.metadata and getattr(message, field.name) == field.default:
            del data[field.name]
    body = _canonical(data)
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
    return typing.cast(Inventory, build(Inventory, data, Inventory.kind))


def _open(envelope: Envelope, keys: Mapping[int, bytes], kinds: Iterable[Any]) -> object:
    if len(envelope.body) > MAX_BYTES:
        raise WireError("too_large", f"{len(envelope.body)} bytes")
    key = keys.get(envelope.key_version)
    if key is None:
        raise WireError("unknown_key", f"version {envelope.key_version}")
    if not hmac.compare_digest(_mac(envelope.body, key).encode(), as_bytes(envelope.mac)):
        raise WireError("bad_mac")
    data = load(envelope.body, limit=MAX_BYTES)
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
        raise WireError("malformed", "no kind")
    if type(data.get("version")) is not int or data["version"] != VERSION:
        raise WireError("unknown_version", repr(data.get("version")))
    kind = data.pop("kind")
    for cls in kinds:
        if cls.kind == kind:
            return build(cls, data, kind)
    raise WireError("unknown_kind", kind)


def _mac(body: bytes, key: bytes) -> str:
    return hmac.new(key, body, hashlib.sha256).hexdigest()


def _canonical(data: object) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
