"""A node's keys, and how a new one is handed over without being sent in clear."""

import hashlib
import hmac
import re

from allocation.wire.strict import WireError


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
