"""Where webhooks may go: every form of a private address is refused, at save and at connect."""

import socket
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from pytest_django import Settings

from tenants.rules.webhooks import BadTarget, address_check, target_read
from tenants.services.outgoing.targets import target_address

PUBLIC = ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c")


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255"),  # noqa: S104
        *("192.168.1.1", "169.254.169.254", "100.64.0.1", "100.100.100.200", "192.0.0.1"),
        *("224.0.0.1", "240.0.0.1", "255.255.255.255", "198.18.0.1", "168.63.129.16"),
        *("::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::7f00:1", "64:ff9b::7f00:1", "2002:7f00:1::"),
        *("fec0::1", "feff::1", "3fff::1", "192.88.99.1", "::ffff:0:7f00:1", "100::1"),
        *("64:ff9b:1::1", "2001:0:7f00:1::", "::ffff:169.254.169.254"),
        *("192.0.0.8", "192.0.0.10", "192.0.0.192", "::ffff:192.0.0.192", "2001:1::1", "2001:20::1"),
    ],
)
def test_private_addresses_are_refused_in_every_form(address: str) -> None:
    with pytest.raises(BadTarget, match="address_private"):
        address_check(target_read("https://example.org/"), ip_address(address), [])


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_needs_https_and_a_usual_port(address: str) -> None:
    found = ip_address(address)
    address_check(target_read("https://example.org/hook"), found, [])
    address_check(target_read("https://example.org:8443/hook"), found, [])
    with pytest.raises(BadTarget, match="address_public_https"):
        address_check(target_read("http://example.org/hook"), found, [])
    for port in (22, 6379, 80, 0, 65535):
        with pytest.raises(BadTarget, match="address_public_port"):
            address_check(target_read(f"https://example.org:{port}/"), found, [])


def test_an_operator_allows_networks_and_no_more() -> None:
    allowed = [ip_network("10.20.0.0/16"), ip_network("fd12::/16")]
    plain = target_read("http://ci.internal:9000/hook")
    for address in ("10.20.3.4", "::ffff:10.20.3.4", "fd12::7"):
        address_check(plain, ip_address(address), allowed)
    for address in ("10.21.3.4", "127.0.0.1", "fd13::7"):
        with pytest.raises(BadTarget):
            address_check(plain, ip_address(address), allowed)


@pytest.mark.parametrize(
    "url",
    [
        *("gopher://example.org/", "file:///etc/passwd", "ftp://example.org/", "example.org/hook"),
        *("//example.org/", "https://", "https:///hook", "", "https://user@example.org/"),
        *("https://user:word@127.0.0.1/", "https://example.org#@127.0.0.1/", "https://ex ample/"),
        *("https://[example.com]/", "https://[::1%25eth0]/", "https://example.org:99999/"),
        *("https://example.org:-1/", "https://exämple.org/", "https://example.org\\@127.0.0.1/"),
        *("https://example.org/\r\nHost: x", "https://example.org/a b", "https://-x.org/"),
        *("https://x..org/", "https://example.org/" + "x" * 500, "https://%31%32%37.0.0.1/"),
    ],
)
def test_what_is_no_plain_address_is_refused(url: str) -> None:
    with pytest.raises(BadTarget):
        target_read(url)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost"),
        *("localhost.", "LOCALHOST", "[::1]", "[::ffff:127.0.0.1]", "0", "[::]"),
    ],
)
def test_names_of_this_machine_are_refused_after_they_resolve(host: str) -> None:
    with pytest.raises(BadTarget):
        target_address(target_read(f"https://{host}/"))


def _resolves(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    def answer(host: str, port: int, **_: object) -> list[Any]:
        assert host == "example.org"
        return [(None, None, None, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


def test_one_private_address_among_public_ones_refuses_the_name(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    target = target_read("https://example.org/")
    _resolves(monkeypatch, *PUBLIC)
    assert str(target_address(target)) == PUBLIC[0]
    _resolves(monkeypatch, PUBLIC[0], "10.0.0.1")
    with pytest.raises(BadTarget, match="address_private"):
        target_address(target)
    _resolves(monkeypatch)
    with pytest.raises(BadTarget, match="name_unresolved"):
        target_address(target)
    _resolves(monkeypatch, "10.0.0.1")
    settings.WEBHOOK_ALLOW = [ip_network("10.0.0.0/8")]
    assert str(target_address(target)) == "10.0.0.1"
