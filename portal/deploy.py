"""Insecure settings that stop every process of a portal with an https address.

`manage.py check --deploy` checks Django's own settings; this module checks their values.
"""

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote, urlsplit

from portal.env import BadSetting, Database, password_weakness, secret_weakness


def production_check(
    *,
    is_https: bool,
    is_debug: bool,
    hosts: Sequence[str],
    secrets: Mapping[str, str],
    stores: Mapping[str, Database | str],
) -> None:
    """Raises BadSetting with all weaknesses if the portal has an https address."""
    if not is_https:
        return
    weak = [*weaknesses(is_debug=is_debug, hosts=hosts, secrets=secrets, stores=stores)]
    if weak:
        raise BadSetting("Insecure settings for an https address: " + "; ".join(weak))


def weaknesses(
    *,
    is_debug: bool,
    hosts: Sequence[str],
    secrets: Mapping[str, str],
    stores: Mapping[str, Database | str],
) -> Iterator[str]:
    """Yields a sentence for each setting that is unsafe for a public portal."""
    yield from _exposures(is_debug, hosts)
    yield from _weak_secrets(secrets)
    yield from _default_passwords(stores)


def _exposures(is_debug: bool, hosts: Sequence[str]) -> Iterator[str]:  # noqa: FBT001 (only here)
    if is_debug:
        yield "DEBUG is on and shows code and settings to everybody"
    if any(host.strip() in {"*", "", "."} for host in hosts):
        yield "ALLOWED_HOSTS accepts every host name"


def _weak_secrets(secrets: Mapping[str, str]) -> Iterator[str]:
    for name, value in secrets.items():
        if why := secret_weakness(value):
            yield f"{name} {why}"
    if len(set(secrets.values())) < len(secrets):
        yield f"{' and '.join(secrets)} must all be different"


def _default_passwords(stores: Mapping[str, Database | str]) -> Iterator[str]:
    for name, store in stores.items():
        if isinstance(store, Database):
            # On a local socket PostgreSQL can authenticate the user by the process.
            is_local = store.host.startswith("/") and not store.password
            why = "" if is_local else password_weakness(store.user, store.password)
        else:
            parts = urlsplit(store)
            why = password_weakness(parts.username or "", unquote(parts.password or ""))
        if why:
            yield f"{name} {why}"
