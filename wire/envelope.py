"""Signed bytes, and the messages in them."""

import dataclasses
import functools
import hashlib
import hmac
import json
import re
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from wire.desired import Desired, Lease
from wire.engines import EngineAnswer, EngineHosts
from wire.fields import VERSION
from wire.reports import FromAgent, Inventory
from wire.strict import WireError, as_bytes, build, load

MAX_BYTES = 1 << 20
Message = Desired | Lease | FromAgent | EngineHosts | EngineAnswer


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
    body = _canonical({"kind": message.kind, **_plain(message)})
    if len(body) > MAX_BYTES:
        raise WireError("too_large", f"{len(body)} bytes")
    return Envelope(body, key_version, _mac(body, key))


def open_desired(envelope: Envelope, keys: Mapping[int, bytes]) -> Desired:
    """Checks the signature with the key of the envelope's version, then reads. Raises WireError."""
    return typing.cast(Desired, _open(envelope, keys, [Desired]))


def open_lease(envelope: Envelope, keys: Mapping[int, bytes]) -> Lease:
    """As open_desired. Raises WireError."""
    return typing.cast(Lease, _open(envelope, keys, [Lease]))


def open_report(envelope: Envelope, keys: Mapping[int, bytes]) -> FromAgent:
    """As open_desired, for what agents send. Raises WireError."""
    return typing.cast(FromAgent, _open(envelope, keys, typing.get_args(FromAgent)))


def open_engine_hosts(envelope: Envelope, keys: Mapping[int, bytes]) -> EngineHosts:
    """As open_desired, for what an engine says of its hosts. Raises WireError."""
    return typing.cast(EngineHosts, _open(envelope, keys, [EngineHosts]))


def open_engine_answer(envelope: Envelope, keys: Mapping[int, bytes]) -> EngineAnswer:
    """As open_desired, for the portal's answer to it. Raises WireError."""
    return typing.cast(EngineAnswer, _open(envelope, keys, [EngineAnswer]))


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


def _plain(value: Any) -> Any:  # noqa: ANN401  JSON is what it is
    """JSON-ready values, without the later fields that say nothing."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if not dataclasses.is_dataclass(value):
        return value
    kind: Any = type(value)
    found = ((name, getattr(value, name), later) for name, later in _fields(kind))
    return {name: _plain(held) for name, held, later in found if not later or held != later[0]}


@functools.cache
def _fields(cls: Any) -> tuple[tuple[str, tuple[Any, ...]], ...]:  # noqa: ANN401 (a dataclass)
    """Each field's name, and for one that came later what it is when it says nothing."""
    return tuple(
        (field.name, (field.default,) if "later" in field.metadata else ())
        for field in dataclasses.fields(cls)
    )


def _mac(body: bytes, key: bytes) -> str:
    return hmac.new(key, body, hashlib.sha256).hexdigest()


def _canonical(data: object) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def node_key(master: bytes, node: str, version: int) -> bytes:
    """The 32-byte signing key of one node, so that the portal stores no node's secret."""
    info = f"gpu-portal/node-key/{version}/{node}".encode()
    return hmac.new(master, info, hashlib.sha256).digest()


def key_wrap(*, old: bytes, new: bytes, node: str, version: int) -> str:
    """`new`, the node's 32-byte key of `version`, as only a holder of `old` can read it; hex."""
    return _padded(new, old, node, version).hex()


def key_unwrap(*, old: bytes, hidden: str, node: str, version: int) -> bytes:
    """What key_hide hid. Raises WireError: malformed."""
    if not re.fullmatch(r"[0-9a-f]{64}", hidden):
        raise WireError("malformed", "not a hidden key")
    return _padded(bytes.fromhex(hidden), old, node, version)


def _padded(text: bytes, old: bytes, node: str, version: int) -> bytes:
    """The pad is a pseudo-random value that is used for one 32-byte key and never again."""
    pad = hmac.new(old, f"gpu-portal/hidden-key/{version}/{node}".encode(), hashlib.sha256).digest()
    return bytes(one ^ other for one, other in zip(text, pad, strict=True))
