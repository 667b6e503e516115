"""Profiling values of cards without GPM, from the exporter of DCGM that a site runs on the node.

DCGM reads the counters of cards from Volta on, and one program at a time may: the site's host engine is that
one. Its exporter says them as Prometheus text. Only whole GPUs are read, and only the time of SMs, of tensor
cores and of memory: what the link counters count depends on how the exporter is configured.
"""

import http.client
import logging
import re
from collections.abc import Callable, Mapping
from threading import Lock, Thread
from time import monotonic
from urllib.parse import urlsplit

log = logging.getLogger(__name__)

FIELDS = {
    "DCGM_FI_PROF_SM_ACTIVE": "sm",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "tensor",
    "DCGM_FI_PROF_DRAM_ACTIVE": "bandwidth",
}
"""The name of each value in a reading, by DCGM's."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
LIMIT_S, MOST_BYTES = 1.0, 1 << 20
# All GPUs are measured from one answer, that of the time before. After a failure nothing is asked for a
# while.
KEPT_S, FRESH_S, AFTER_FAILURE_S = 5.0, 30.0, 60.0
_LINE = re.compile(r"(\w+)\{([^}]*)\} (\S+)")
_UUID = re.compile(r'\bUUID="(GPU-[0-9a-f-]+)"', re.IGNORECASE)


def exporter_address(text: str) -> str:
    """Returns the address of an exporter on this node. Raises ValueError."""
    parts = urlsplit(text)
    if parts.scheme != "http" or parts.hostname not in LOOPBACK or not parts.port or parts.username:
        raise ValueError(f"{text!r} is not an address such as http://127.0.0.1:9400/metrics")
    return text


class Exporter:
    """Reads the exporter at an address of `exporter_address`. Nobody waits for it: who asks gets what was
    read last, because a question to the driver that takes long counts as a driver that hangs."""

    def __init__(self, address: str, clock: Callable[[], float] = monotonic) -> None:
        self._parts, self._clock = urlsplit(address), clock
        self._lock = Lock()
        self._found: Mapping[str, dict[str, int | None]] = {}
        self._due = self._stale = clock()
        self._reader: Thread | None = None

    def whole(self, gpu: str) -> dict[str, int | None]:
        """The values of a whole GPU in percent; nothing where the exporter has none, or has not said any
        yet."""
        with self._lock:
            now = self._clock()
            if now >= self._due and (self._reader is None or not self._reader.is_alive()):
                self._reader = Thread(target=self._read, name="dcgm-exporter", daemon=True)
                self._reader.start()
            return dict(self._found.get(gpu, {})) if now < self._stale else {}

    def _read(self) -> None:
        try:
            found, rest = values_of(self._text()), KEPT_S
        except (OSError, http.client.HTTPException, ValueError) as error:
            log.warning("the exporter of DCGM says nothing: %s", error)
            found, rest = {}, AFTER_FAILURE_S
        with self._lock:
            now = self._clock()
            self._found, self._due, self._stale = found, now + rest, now + FRESH_S

    def _text(self) -> str:
        """The answer. Raises OSError, HTTPException or ValueError."""
        until = self._clock() + LIMIT_S
        connection = http.client.HTTPConnection(self._parts.hostname or "", self._parts.port, timeout=LIMIT_S)
        try:
            connection.request("GET", self._parts.path or "/metrics")
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                raise ValueError(f"status {answer.status}")
            found = b""
            while part := answer.read1(1 << 16):
                found += part
                if len(found) > MOST_BYTES or self._clock() > until:
                    raise ValueError("its answer is too long or too slow")
        finally:
            connection.close()
        return found.decode("utf-8")


def values_of(text: str) -> dict[str, dict[str, int | None]]:
    """The values of whole GPUs by UUID, in percent. What is no share of 1 is left out, as DCGM's blank."""
    found: dict[str, dict[str, int | None]] = {}
    for name, labels, value in _LINE.findall(text):
        if name not in FIELDS or "GPU_I_ID=" in labels:
            continue
        uuid, share = _UUID.search(labels), _share(value)
        if uuid is not None and share is not None:
            found.setdefault(uuid[1], {})[FIELDS[name]] = share
    return found


def _share(text: str) -> int | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return round(100 * number) if 0 <= number <= 1 else None
