"""What operators do with engines, and what they see of their hosts."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db.models.fields.json import KeyTextTransform
from rest_framework import serializers

import wire
from allocation.models import EngineAgent, EngineHost, Node
from allocation.services.nodes.engines import (
    engine_hosts_approve,
    engine_key_rotate,
    engine_revoke,
    engine_token_create,
    hosts_waiting,
    is_alone,
)
from allocation.services.nodes.fleet import TOKEN_LIFETIME
from allocation.words.refusals import refusal_text
from tenants.access import PlatformActor
from tenants.models import User
from tenants.platform.errors import invalid, missing
from tenants.platform.rest.fields import Text
from tenants.platform.terms import term, terms

# An engine says every 15 s which hosts there are.
SILENT = timedelta(minutes=3)
RACK = r"^[a-z0-9][a-z0-9-]{0,39}$"
_MOVES = "It has an identity of its own, which ends when you approve it here. What runs on it continues."


@terms
class EngineTerms:
    """The engine to enrol."""

    engine: str = term("Name", "Small letters, digits and hyphens.", max_length=40, example="main")
    rack: str = term(
        "Rack",
        "The rack of hosts that join.",
        max_length=40,
        body=serializers.RegexField(RACK),
        example="a2",
    )


@terms
class HostsTerms:
    """The hosts that become nodes of the portal: these, and all that wait with GPUs of a kind."""

    hosts: Sequence[str] = term(
        "Hosts",
        "By the scheduler's names, separated by commas.",
        says="By name.",
        default=(),
        body=serializers.ListField(child=Text(max_length=64), required=False, max_length=200),
    )
    rack: str = term(
        "Rack",
        "Where they stand; also of hosts that are nodes already.",
        says="Where they stand. Without it where their scheduler says, else the engine's; hosts that are"
        " nodes already stay in theirs.",
        default="",
        max_length=40,
        allow_blank=True,
        body=serializers.RegexField(RACK, required=False, allow_blank=True),
    )
    kind: str = term(
        "Kind",
        "All waiting hosts with these GPUs, such as 4 × NVIDIA L40S.",
        says="All waiting hosts with these GPUs, such as `4 × NVIDIA L40S`.",
        default="",
        max_length=200,
        allow_blank=True,
    )


@dataclass(frozen=True, slots=True)
class EngineToken:
    """A token for one agent, shown once."""

    engine: str
    token: str
    expires_at: datetime

    @property
    def name(self) -> str:
        """The engine."""
        return self.engine


@dataclass(frozen=True, slots=True)
class HostNow:
    """A host of an engine. `state`: `waiting` for approval, `refused` with `why`, `served`, or `gone` from
    the cluster; `since` is when that began, as far as it is known. One that `moves` waits, and is a node
    with an identity of its own until then. `node` is its name in the portal, and `rack` where it
    stands, or would."""

    name: str
    state: str
    kind: str
    since: datetime | None
    why: str = ""
    moves: bool = False
    node: str = ""
    rack: str = ""

    @property
    def words(self) -> str:
        """The state for people."""
        return {"waiting": "waits for approval", "refused": "can't join"}.get(self.state, self.state)


@dataclass(frozen=True, slots=True)
class EngineView:
    """An engine with its hosts. `state`: `expected` before its enrolment, `reporting`, `silent`, or
    `locked_out`; `waiting` has how many hosts of each kind wait."""

    name: str
    scheduler: str
    rack: str
    state: str
    agent_version: str
    last_seen: datetime | None
    rotating: bool
    hosts: tuple[HostNow, ...]
    waiting: tuple[tuple[str, int], ...]

    @property
    def scheduler_words(self) -> str:
        """The scheduler for people."""
        return str(dict(Node.Engine.choices).get(self.scheduler, "not known"))

    @property
    def served(self) -> int:
        """How many hosts are nodes of the portal."""
        return sum(each.state in ("served", "gone") for each in self.hosts)

    @property
    def moving(self) -> tuple[str, ...]:
        """The hosts that were enrolled one by one, and move to the engine when they are approved."""
        return tuple(each.name for each in self.hosts if each.moves)

    @property
    def waits(self) -> int:
        """How many hosts wait for approval."""
        return sum(each.state == "waiting" for each in self.hosts)


def engines_view(now: datetime, name: str | None = None) -> list[EngineView]:
    """The engines with their hosts, by name; or one of them."""
    engines = EngineAgent.objects.select_related("rack").order_by("name")
    engines = engines if name is None else engines.filter(name=name)
    reported: dict[str, list[EngineHost]] = defaultdict(list)
    rows = EngineHost.objects.filter(engine__in=engines).defer("inventory").order_by("name")
    rows = rows.annotate(rack=KeyTextTransform("rack", "inventory"))
    for row in rows:
        reported[row.engine_id].append(row)
    names = [wire.node_name(row.name) for row in rows]
    named = Node.objects.filter(name__in=names) | Node.objects.filter(engine_agent__in=engines)
    nodes = {each.name: each for each in named.select_related("rack")}
    return [_view(engine, reported[engine.name], nodes, now) for engine in engines]


def engine_view(name: str, now: datetime) -> EngineView:
    """One engine with its hosts. Raises Refused `not_found`."""
    found = engines_view(now, name)
    if not found:
        raise missing("engine")
    return found[0]


def _view(
    engine: EngineAgent, reported: Sequence[EngineHost], nodes: dict[str, Node], now: datetime
) -> EngineView:
    hosts = [_host(engine, row, nodes.get(wire.node_name(row.name))) for row in reported]
    known = {row.name for row in reported}
    own = {
        node.host_name or node.name: node for node in nodes.values() if node.engine_agent_id == engine.name
    }
    gone = {host: node for host, node in own.items() if host not in known}
    hosts += [
        HostNow(host, "gone", "", None, node=node.name, rack=node.rack.name) for host, node in gone.items()
    ]
    kinds = Counter(row.kind for row in hosts_waiting(engine))
    return EngineView(
        name=engine.name,
        scheduler=engine.engine,
        rack=engine.rack.name,
        state=_state(engine, now),
        agent_version=engine.agent_version,
        last_seen=engine.last_seen,
        rotating=engine.key_confirmed < engine.key_version,
        hosts=tuple(sorted(hosts, key=lambda each: each.name)),
        waiting=tuple(sorted(kinds.items())),
    )


def _state(engine: EngineAgent, now: datetime) -> str:
    if engine.is_locked_out:
        return "locked_out"
    if not engine.was_enrolled:
        return "expected"
    return "reporting" if engine.last_seen is not None and now - engine.last_seen < SILENT else "silent"


def _host(engine: EngineAgent, row: EngineHost, node: Node | None) -> HostNow:
    name = wire.node_name(row.name)
    rack = node.rack.name if node is not None else getattr(row, "rack", "") or engine.rack.name
    host = HostNow(row.name, "waiting", row.kind, row.since, node=name, rack=rack)
    if node is None:
        return host
    if node.engine_agent_id == engine.name and (node.host_name or node.name) == row.name:
        if row.gone is not None:
            return replace(host, state="gone", since=row.gone)
        waits = node.state == Node.State.QUARANTINED and not node.differences
        return host if waits else replace(host, state="served")
    if is_alone(engine, node):
        return replace(host, why=_MOVES, moves=True)
    why = _taken(node)
    return replace(host, state="refused", why=why) if why else host


def _taken(node: Node) -> str:
    """Says whose a node is; empty: nobody's."""
    if node.engine_agent_id is not None:
        other = node.host_name or node.name
        return f"The node {node.name} is the host {other} of the engine {node.engine_agent_id}."
    return "" if node.link_digest is None else "It has an agent of its own. Lock that out first."


def engine_enrolment(*, actor: PlatformActor, terms: EngineTerms, now: datetime) -> EngineToken:
    """Makes a token with which an engine enrols. Raises Refused as `engine_token_create`."""
    token = engine_token_create(
        engine=terms.engine,
        rack=terms.rack,
        now=now,
        operator=_operator(actor),
        made_with=actor.token_id,
    )
    return EngineToken(terms.engine, token, now + TOKEN_LIFETIME)


def hosts_approve(*, actor: PlatformActor, terms: HostsTerms, now: datetime, name: str) -> EngineView:
    """Approves hosts. Raises Refused `no_hosts_named`, or as `engine_hosts_approve`."""
    if not terms.hosts and not terms.kind:
        raise invalid("no_hosts_named", refusal_text("no_hosts_named"), "hosts")
    engine_hosts_approve(
        operator=_operator(actor),
        engine_name=name,
        names=terms.hosts,
        kind=terms.kind,
        rack=terms.rack,
        now=now,
    )
    return engine_view(name, now)


def access_revoke(*, actor: PlatformActor, now: datetime, name: str) -> EngineView:
    """Locks an engine out. Raises Refused as `engine_revoke`."""
    engine_revoke(operator=_operator(actor), engine_name=name, now=now)
    return engine_view(name, now)


def keys_rotate(*, actor: PlatformActor, now: datetime, name: str) -> EngineView:
    """Rotates the keys of an engine and its hosts. Raises Refused as `engine_key_rotate`."""
    engine_key_rotate(operator=_operator(actor), engine_name=name, now=now)
    return engine_view(name, now)


def _operator(actor: PlatformActor) -> User:
    return User.objects.get(id=actor.user_id)
