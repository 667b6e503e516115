"""What operators do with engines, and what they see of their hosts."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rest_framework import serializers

from allocation.models import EngineAgent, EngineHost, Node
from allocation.services.nodes.engines import (
    engine_hosts_approve,
    engine_key_rotate,
    engine_revoke,
    engine_token_create,
    hosts_waiting,
    is_alone,
)
from allocation.services.nodes.fleet import NODE_NAME, TOKEN_LIFETIME
from allocation.words.refusals import refusal_text
from tenants.access import PlatformActor
from tenants.models import User
from tenants.platform.errors import invalid, missing
from tenants.platform.rest.fields import Text
from tenants.platform.terms import term, terms

# An engine says every 15 s which hosts there are.
SILENT = timedelta(minutes=3)
_MOVES = "It has an identity of its own, which ends when you approve it here. What runs on it continues."


@terms
class EngineTerms:
    """The engine to enrol."""

    engine: str = term("Name", "Small letters, digits and hyphens.", max_length=40, example="main")
    rack: str = term(
        "Rack",
        "The rack of hosts that join.",
        max_length=40,
        body=serializers.RegexField(r"^[a-z0-9][a-z0-9-]{0,39}$"),
        example="a2",
    )


@terms
class HostsTerms:
    """The hosts that become nodes of the portal: these, and all that wait with GPUs of a kind."""

    hosts: Sequence[str] = term(
        "Hosts",
        says="By name.",
        default=(),
        body=serializers.ListField(child=Text(max_length=64), required=False, max_length=200),
    )
    kind: str = term(
        "Kind",
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
    with an identity of its own until then."""

    name: str
    state: str
    kind: str
    since: datetime | None
    why: str = ""
    moves: bool = False

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
    for row in rows:
        reported[row.engine_id].append(row)
    named = Node.objects.filter(name__in=rows.values("name")) | Node.objects.filter(engine_agent__in=engines)
    nodes = {each.name: each for each in named}
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
    hosts = [_host(engine, row, nodes.get(row.name)) for row in reported]
    known = {row.name for row in reported}
    own = (node for node in nodes.values() if node.engine_agent_id == engine.name and node.name not in known)
    hosts += [HostNow(node.name, "gone", "", None) for node in own]
    kinds = Counter(hosts_waiting(engine).values_list("kind", flat=True))
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
    if node is not None and node.engine_agent_id == engine.name:
        if row.gone is not None:
            return HostNow(row.name, "gone", row.kind, row.gone)
        waits = node.state == Node.State.QUARANTINED and not node.differences
        return HostNow(row.name, "waiting" if waits else "served", row.kind, row.since)
    if node is not None and is_alone(engine, node):
        return HostNow(row.name, "waiting", row.kind, row.since, _MOVES, moves=True)
    why = ""
    if not NODE_NAME.fullmatch(row.name):
        why = "Its name is none that a node can have: lower-case letters, digits and hyphens."
    elif node is not None and node.engine_agent_id is not None:
        why = f"It is a host of the engine {node.engine_agent_id}."
    elif node is not None and node.link_digest is not None:
        why = "It has an agent of its own. Lock that out first."
    return HostNow(row.name, "refused" if why else "waiting", row.kind, row.since, why)


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
        operator=_operator(actor), engine_name=name, names=terms.hosts, kind=terms.kind, now=now
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
