"""Nodes' report streams, read with a limit on the data of each node.

A node writes its own stream, and account rules can't limit its size. Sizes are therefore checked at
the server in the same step as reading: streams that are too large are reported and not read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import wire
from allocation.models import Node
from allocation.services.nodes.redis_accounts import agents_redis
from tenants.platform.database.compiled import Compiled

GROUP = "portal"
enrolled_names = Compiled(
    lambda _now, _keys: Node.objects.filter(link_digest__isnull=False).values_list("name", flat=True)
)
enrolled_accounts = Compiled(
    lambda _now, _keys: Node.objects.filter(link_digest__isnull=False).values_list("name", "engine_agent_id")
)
# Agents trim their stream to about 1,000 entries, a few MiB for a large node.
ENTRIES_MOST = 2 * wire.REPORT_STREAM_LENGTH
BYTES_MOST = 16 << 20
# No agent that trims its stream can exceed this.
FAR_OVER = 4
# Bytes of all nodes per read.
BYTES_AT_ONCE = 32 << 20

_SIZES = """
local function over(stream)
  local length = redis.call('XLEN', stream)
  if length == 0 then return nil, 0 end
  local samples = length > tonumber(ARGV[1]) and '5' or '0'
  local bytes = redis.call('MEMORY', 'USAGE', stream, 'SAMPLES', samples)
  if length > tonumber(ARGV[1]) or bytes > tonumber(ARGV[2]) then
    return {stream, length, bytes}, bytes
  end
  return false, bytes
end
"""
_OVERSIZE = """
local found = {}
for _, stream in ipairs(KEYS) do
  local big = over(stream)
  if big then found[#found + 1] = big end
end
return found
"""
_READ = """
local room = tonumber(ARGV[3])
local found, large = {}, {}
for _, stream in ipairs(KEYS) do
  local big, bytes = over(stream)
  if big then
    large[#large + 1] = big
  elseif big == false and (bytes <= room or #found == 0) then
    local entries
    if ARGV[7] == '' then
      local answer = redis.call('XREADGROUP', 'GROUP', ARGV[4], ARGV[5], 'COUNT', ARGV[6],
        'STREAMS', stream, '>')
      entries = answer and answer[1] and answer[1][2]
    else
      entries = redis.call('XAUTOCLAIM', stream, ARGV[4], ARGV[5], ARGV[7], '0-0',
        'COUNT', ARGV[6])[2]
    end
    if entries and #entries > 0 then
      found[#found + 1] = {stream, entries}
      room = room - bytes
    end
  end
end
return {found, large}
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a node's stream."""

    stream: str
    identifier: bytes
    fields: Mapping[Any, Any]

    @property
    def added_ms(self) -> int:
        """Time of addition in milliseconds since 1970, by the server's clock. A node can forge it
        and harms only itself."""
        return int(self.identifier.split(b"-")[0])

    @property
    def size(self) -> int:
        """Bytes of names and values."""
        return sum(len(name) + len(value) for name, value in self.fields.items())


@dataclass(frozen=True, slots=True)
class Oversize:
    """A stream that is longer or larger than a trimming agent would leave it."""

    node: str
    stream: str
    entries: int
    size: int

    @property
    def is_far_over(self) -> bool:
        return self.entries > FAR_OVER * ENTRIES_MOST or self.size > FAR_OVER * BYTES_MOST


def node_of(stream: str) -> str:
    """The node of a stream."""
    return stream.split(":")[1]


def streams_read(
    reader: str, streams: Sequence[str], count: int, idle_ms: int | None = None
) -> tuple[list[Entry], list[Oversize]]:
    """Reads at most `count` new entries of each stream, and returns the streams that are too large.

    With `idle_ms`, reads entries that another reader took that long ago and never finished. Streams
    beyond `BYTES_AT_ONCE` wait; callers rotate the order. Raises redis.RedisError.
    """
    if not streams:
        return [], []
    idle = "" if idle_ms is None else idle_ms
    sizes = (ENTRIES_MOST, BYTES_MOST, BYTES_AT_ONCE)
    found, large = _script(_READ)(keys=streams, args=(*sizes, GROUP, reader, count, idle))
    entries = [
        Entry(stream.decode(), identifier, dict(zip(fields[::2], fields[1::2], strict=True)))
        for stream, rows in found
        for identifier, fields in rows
        if fields
    ]
    return entries, _oversizes(large)


def streams_oversize(streams: Sequence[str]) -> list[Oversize]:
    """The streams that are too large. Raises redis.RedisError."""
    if not streams:
        return []
    return _oversizes(_script(_OVERSIZE)(keys=streams, args=(ENTRIES_MOST, BYTES_MOST)))


def stream_trim(stream: str, keep: int) -> None:
    """Drops all but the newest `keep` entries. Raises redis.RedisError."""
    agents_redis().xtrim(stream, maxlen=keep, approximate=False)


def _oversizes(rows: Iterable[Any]) -> list[Oversize]:
    return [
        Oversize(node_of(stream.decode()), stream.decode(), entries, size) for stream, entries, size in rows
    ]


@cache
def _script(body: str) -> Any:  # noqa: ANN401 (redis has no types)
    return agents_redis().register_script(_SIZES + body)
