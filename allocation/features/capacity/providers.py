"""Providers of machines: the file that names them, and what the portal needs of one.

The file has no secrets: it names environment variables, or files, that hold them. Only the worker
opens a provider.
"""

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from django.conf import settings

from allocation.features.capacity.rules import Offer
from allocation.words.refusals import refusal_text
from billing.price_books import currency_latest
from tenants.platform.errors import Refused
from tenants.platform.text import currency_sentence

PREFIX = "gpu-burst"
_PROVIDER = {
    "name": str, "driver": str, "currency": str, "most_machines": int, "most_cost_a_month": str,
    "site": str, "key": str, "secret": str, "secret_env": str, "secret_file": str, "image": str,
    "arguments": dict, "create": dict, "boot_file": str, "agent": str, "portal": str, "offer": list,
}  # fmt: skip
_PROVIDER_NEEDS = ("name", "driver", "most_machines", "most_cost_a_month", "offer")
_OFFER = {
    "name": str, "size": str, "gpu_class": str, "gpus": int, "price": str, "lead_seconds": int,
    "least_seconds": int, "period_seconds": int, "zone": str, "interruptible": bool, "reserved_price": str,
}  # fmt: skip
_OFFER_NEEDS = ("name", "size", "gpu_class", "gpus", "price", "lead_seconds")


class ProviderFailed(Exception):
    """A provider did not do what it was asked for. The message has no secret."""


class ProvidersFault(Exception):
    """The file of providers can't be read; the message names the key."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A machine as its provider lists it. `leaves`: when it takes the machine back, by its own notice."""

    id: str
    name: str
    is_running: bool = True
    has_failed: bool = False
    leaves: datetime | None = None


class Machines(Protocol):
    """What the portal needs of a provider. All raise ProviderFailed."""

    def listing(self) -> Sequence[Listed]:
        """The machines that are paid for, of whatever name."""

    def acquire(self, name: str, offer: Offer, boot: str) -> str:
        """Requests a machine that runs the script `boot`; returns its id. Where the provider knows
        tokens of clients, the same name is the same machine."""

    def release(self, machine_id: str) -> None:
        """Gives a machine back. A machine that is not there is no failure."""


@dataclass(frozen=True)
class Provider:
    """A provider as the file has it."""

    name: str
    driver: str
    currency: str
    most_machines: int
    most_cost: Decimal
    offers: tuple[Offer, ...]
    site: str
    key: str = ""
    secret_env: str = ""
    secret_file: str = ""
    image: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    create: Mapping[str, Any] = field(default_factory=dict)
    boot_file: str = ""
    agent: str = "gpu-portal"
    portal: str = ""

    @property
    def prefix(self) -> str:
        """What names of this site's machines begin with."""
        return f"{PREFIX}-{self.site}-"

    def secret(self) -> str:
        """The secret, from the environment or a file. Raises ProviderFailed."""
        if self.secret_file:
            try:
                return Path(self.secret_file).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise ProviderFailed(f"The secret of {self.name} can't be read: {error.strerror}.") from None
        if self.secret_env and self.secret_env not in os.environ:
            raise ProviderFailed(f"{self.secret_env}, the secret of {self.name}, is not set.")
        return os.environ.get(self.secret_env, "")


def providers() -> tuple[Provider, ...]:
    """The providers of the site. Raises Refused `providers_invalid`."""
    if not settings.PROVIDERS_FILE:
        return ()
    path = Path(settings.PROVIDERS_FILE)
    try:
        return _read(path, path.stat().st_mtime_ns, currency_latest())
    except (OSError, ProvidersFault) as error:
        raise Refused(
            "providers_invalid", refusal_text("providers_invalid", error=error), owner="operator"
        ) from error


def offers() -> list[Offer]:
    """All offers of all providers."""
    return [offer for each in providers() for offer in each.offers]


@lru_cache(maxsize=4)
def _read(path: Path, _changed: int, currency: str) -> tuple[Provider, ...]:
    return providers_parse(path.read_text(encoding="utf-8"), currency)


def providers_parse(text: str, currency: str) -> tuple[Provider, ...]:
    """Reads the file of a site with the currency. Raises ProvidersFault."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProvidersFault(str(error)) from None
    _check("", values, {"provider": list}, ("provider",))
    found = tuple(_provider(f"provider[{n}]", each, currency) for n, each in enumerate(values["provider"]))
    if len({each.name for each in found}) < len(found):
        raise ProvidersFault("provider: two have the same name")
    return found


def _provider(at: str, row: Mapping[str, Any], currency: str) -> Provider:
    _check(at, row, _PROVIDER, _PROVIDER_NEEDS)
    if row.get("currency", currency) != currency:
        raise ProvidersFault(f"{at}.currency: {currency_sentence(currency)}")
    offered = tuple(
        _offer(f"{at}.offer[{n}]", row["name"], currency, each) for n, each in enumerate(row["offer"])
    )
    plain = {name: row[name] for name in row if name not in ("most_cost_a_month", "offer", "site", "secret")}
    if "secret" in row:
        raise ProvidersFault(f"{at}.secret: name a variable in secret_env, or a file in secret_file")
    return Provider(
        **{
            **plain,
            "currency": currency,
            "most_cost": _money(f"{at}.most_cost_a_month", row["most_cost_a_month"]),
            "offers": offered,
            "site": row.get("site", "portal"),
        }
    )


def _offer(at: str, provider: str, currency: str, row: Mapping[str, Any]) -> Offer:
    _check(at, row, _OFFER, _OFFER_NEEDS)
    least, reserved = row.get("least_seconds", 3600), row.get("reserved_price")
    numbers = (row["gpus"], row["lead_seconds"], least, row.get("period_seconds", least))
    if min(numbers) < 1:
        raise ProvidersFault(f"{at}: gpus and seconds are at least 1")
    return Offer(
        provider=provider,
        name=row["name"],
        gpu_class=row["gpu_class"],
        gpus=row["gpus"],
        price=_money(f"{at}.price", row["price"]),
        currency=currency,
        lead_seconds=row["lead_seconds"],
        least_seconds=least,
        period_seconds=row.get("period_seconds", least),
        zone=row.get("zone", provider),
        interruptible=row.get("interruptible", False),
        size=row["size"],
        reserved_price=_money(f"{at}.reserved_price", reserved) if reserved is not None else None,
    )


def _check(at: str, row: object, known: Mapping[str, type], needs: Iterable[str]) -> None:
    if not isinstance(row, Mapping):
        raise ProvidersFault(f"{at}: a table is needed")
    where = f"{at}." if at else ""
    for name, value in row.items():
        if name not in known:
            raise ProvidersFault(f"{where}{name}: unknown key")
        if type(value) is not known[name]:
            raise ProvidersFault(f"{where}{name}: must be {_TYPES[known[name]]}")
    for name in needs:
        if name not in row:
            raise ProvidersFault(f"{where}{name}: missing")


_TYPES = {
    str: "a text in quotes",
    int: "a whole number",
    bool: "true or false",
    list: "tables",
    dict: "a table",
}


def _money(at: str, text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise ProvidersFault(f'{at}: write an amount such as "7.50"') from None
    if not amount.is_finite() or amount <= 0:
        raise ProvidersFault(f"{at}: must be more than 0")
    return amount


Opener = Callable[[Provider], Machines]
