"""`gpu login` without a token: codes, the page that confirms them, and the resulting token."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from django.conf import settings as dj_settings
from django.core.cache import caches
from django.test import Client as Browser
from django.utils import timezone
from pytest_django import Settings
from redis.exceptions import ConnectionError as NoRedis
from typer.testing import CliRunner, Result

from gpu_client import commands
from gpu_client.api import Client
from tenants.models import ApiToken
from tenants.platform.errors import Refused
from tenants.services.sign_in.devices import device_sign_in_start, device_token_take
from tests.api.builders import Site, a_site
from tests.client.test_commands import portal_answer
from tests.roles import as_system


@pytest.fixture
def site(db: None) -> Site:
    return a_site()


@pytest.fixture
def page(site: Site) -> Browser:
    """Mara's browser."""
    browser = Browser()
    browser.force_login(site.people["researcher"])
    return browser


def started() -> tuple[str, str]:
    """The codes of a new sign-in: the device's and the person's."""
    codes = device_sign_in_start(name="laptop", scopes=["read"], address="192.0.2.7", now=timezone.now())
    return codes.device_code, codes.user_code


def refused(device_code: str) -> str:
    with pytest.raises(Refused) as found:
        device_token_take(device_code)
    return found.value.code


class Laptop:
    """A machine without a browser, on which somebody runs `gpu login`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file = folder / "gpu.json"
        self.codes: dict[str, Any] = {}
        self.waits: list[Callable[[], object]] = []
        portal = httpx.MockTransport(self._answer)
        monkeypatch.setattr(commands, "Client", lambda config: Client(config, portal))
        monkeypatch.setattr("gpu_client.commands.time.sleep", self._sleep)

    def login(self, *meanwhile: Callable[[], object], status: int = 0) -> Result:
        """Runs the command; each wait does the next of `meanwhile` instead."""
        self.waits = list(meanwhile)
        words = ("login", "--url", "http://localhost", "--name", "gpu on hal")
        environment = {"GPU_CONFIG": str(self.file), "COLUMNS": "240"}
        result = CliRunner().invoke(commands.app, words, env=environment)
        assert result.exit_code == status, result.output
        return result

    def _answer(self, request: httpx.Request) -> httpx.Response:
        response = portal_answer(request)
        if request.url.path.endswith("/device/codes"):
            self.codes = response.json()
        return response

    def _sleep(self, seconds: float) -> None:
        assert seconds == self.codes["interval"]
        self.waits.pop(0)()


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    return Laptop(tmp_path, monkeypatch)


def test_a_person_confirms_a_terminal_in_a_browser(site: Site, page: Browser, laptop: Laptop) -> None:
    def look() -> None:
        code = laptop.codes["user_code"].lower().replace("-", " ")
        shown = page.get("/device", {"code": code}).content.decode()
        assert "gpu on hal" in shown
        assert "Read, Book, change and end bookings" in shown

    def grant() -> None:
        form = {"code": laptop.codes["user_code"], "tenant": "helix", "days": "30", "act": "grant"}
        assert "Signed in" in page.post("/device", form).content.decode()

    result = laptop.login(look, grant)
    assert laptop.codes["user_code"] in result.stderr
    assert laptop.codes["verification_uri_complete"] in result.stderr
    assert "Signed in to Helix as mara." in result.stdout
    token = json.loads(laptop.file.read_text())["token"]
    assert stat.S_IMODE(laptop.file.stat().st_mode) == 0o600
    assert token not in result.output
    with as_system():
        stored = ApiToken.objects.get(name="gpu on hal")
    assert (stored.user_id, sorted(stored.scopes)) == (
        site.people["researcher"].pk,
        ["book", "read"],
    )
    assert (stored.expires - stored.created).days == 30
    assert refused(laptop.codes["device_code"]) == "expired_token"


def test_a_declined_terminal_gets_nothing(site: Site, page: Browser, laptop: Laptop) -> None:
    def decline() -> None:
        page.post("/device", {"code": laptop.codes["user_code"], "act": "decline"})

    result = laptop.login(decline, status=5)
    assert "declined in the browser" in result.stderr
    assert not laptop.file.exists()
    with as_system():
        assert not ApiToken.objects.filter(name="gpu on hal").exists()


@pytest.mark.django_db
def test_a_device_that_asks_too_often_is_slowed_down() -> None:
    device_code, _ = started()
    assert refused(device_code) == "authorization_pending"
    assert refused(device_code) == "slow_down"
    assert refused("not-a-code") == "expired_token"


def test_a_code_works_once_for_members_and_for_good_forms_only(site: Site, page: Browser) -> None:
    device_code, code = started()
    with as_system():
        before = ApiToken.objects.count()
    for form, status, said in (
        ({"code": "BBBB-BBBB", "act": "grant"}, 422, "No device waits with this code"),
        ({"code": code, "act": "grant", "tenant": "helix", "days": "0"}, 422, "days"),
        ({"code": code, "act": "grant", "tenant": "helix", "days": "ten"}, 422, "days"),
        ({"code": code, "act": "grant", "tenant": "northlab", "days": "9"}, 404, "no access"),
    ):
        answer = page.post("/device", form)
        assert (answer.status_code, said in answer.content.decode()) == (status, True), form
    assert Browser().get("/device", {"code": code}).status_code == 302
    with as_system():
        assert ApiToken.objects.count() == before
    good = {"code": code, "act": "grant", "tenant": "helix", "days": "9"}
    assert page.post("/device", good).status_code == 200
    assert page.post("/device", good).status_code == 422
    assert page.post("/device", {"code": code, "act": "decline"}).status_code == 422
    with as_system():
        assert ApiToken.objects.count() == before + 1
    assert device_token_take(device_code).startswith("gpup_pat_")
    assert refused(device_code) == "expired_token"


def test_nobody_can_guess_many_codes(site: Site, page: Browser, settings: Settings) -> None:
    settings.CALL_LIMITS = {**settings.CALL_LIMITS, "device": 3}
    answers = [page.get("/device", {"code": f"BBBB-BBB{end}"}).status_code for end in "BCDFGH"]
    # A window of ten seconds may end between two of them.
    assert set(answers) == {422, 409}


@pytest.mark.django_db
def test_the_token_cannot_be_read_from_the_cache(site: Site, page: Browser) -> None:
    device_code, code = started()
    page.post("/device", {"code": code, "act": "grant", "tenant": "helix", "days": "9"})
    store = redis.Redis.from_url(dj_settings.CACHE_REDIS_URL)
    kept = repr([store.get(key) for key in store.scan_iter("*device:*")])
    token = device_token_take(device_code)
    assert "laptop" in kept or "_Decision" in kept
    assert token not in kept
    assert device_code not in kept


def test_without_redis_the_answer_is_busy(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise NoRedis

    for act in ("get", "set", "add", "incr"):
        monkeypatch.setattr(type(caches["default"]), act, fail)
    answer = Browser().post("/api/v1/device/codes", {"name": "x"}, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (503, "busy")
