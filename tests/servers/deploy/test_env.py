"""Values from the environment."""

from pathlib import Path

import pytest

from portal import env

SECRET = "0123456789abcdef" * 3


@pytest.mark.parametrize(
    ("word", "meant"),
    [("1", True), ("TRUE", True), ("on", True), ("0", False), ("No", False), ("", True)],
)
def test_a_yes_or_no_is_read_in_the_usual_words(
    monkeypatch: pytest.MonkeyPatch, word: str, *, meant: bool
) -> None:
    monkeypatch.setenv("FLAG", word)
    assert env.env_bool("FLAG", default=True) is meant


def test_another_word_is_neither_yes_nor_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAG", "maybe")
    with pytest.raises(env.BadSetting, match="FLAG='maybe'"):
        env.env_bool("FLAG", default=True)


@pytest.mark.parametrize("text", ["ten", "0", "11", "1.5"])
def test_a_number_must_be_whole_and_in_range(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("COUNT", text)
    with pytest.raises(env.BadSetting, match="COUNT"):
        env.env_int("COUNT", 5, low=1, high=10)


def test_a_missing_value_without_default_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAME", "  ")
    with pytest.raises(env.BadSetting, match="NAME is not set"):
        env.env_str("NAME")


@pytest.mark.parametrize("value", ["too-brief", "django-insecure-" + SECRET, "changeme" * 8])
def test_a_weak_secret_is_refused_and_never_repeated(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("KEY", value)
    with pytest.raises(env.BadSetting) as refusal:
        env.env_secret("KEY")
    assert value not in str(refusal.value)


def test_a_secret_may_come_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(SECRET + "\n")
    monkeypatch.setenv("KEY_FILE", str(tmp_path / "key"))
    assert env.env_secret("KEY") == SECRET


def test_a_database_url_may_name_a_socket_folder_and_a_role() -> None:
    url = "postgresql://portal_web:p%40ss@/portal?host=/run/pg&options=-c%20role%3Dportal_web"
    parsed = env.database_parse(url)
    assert (parsed.name, parsed.user, parsed.password) == ("portal", "portal_web", "p@ss")
    assert parsed.host == "/run/pg"
    assert parsed.options == {"options": "-c role=portal_web"}
    assert "p@ss" not in repr(parsed)


@pytest.mark.parametrize(
    "url", ["sqlite:///db", "postgresql://host", "postgresql://host/db?nonsense=1", "portal"]
)
def test_another_database_or_an_unreadable_address_is_refused(url: str) -> None:
    with pytest.raises(env.BadSetting, match="DATABASE_URL"):
        env.database_parse(url)


def test_one_redis_address_gives_numbered_databases() -> None:
    assert env.redis_database("redis://u:p@h:1", 3) == "redis://u:p@h:1/3"
    for url in ("redis://h:1/2", "http://h", "h:6379"):
        with pytest.raises(env.BadSetting):
            env.redis_database(url, 3)


@pytest.mark.parametrize("value", ["gpu.example.org", "ftp://gpu.example.org", "https://h/path"])
def test_the_public_address_is_an_origin(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("PUBLIC_URL", value)
    with pytest.raises(env.BadSetting, match="PUBLIC_URL"):
        env.env_origin("PUBLIC_URL", "http://localhost")


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("smtp://relay", ("relay", 25, "", "", "", "")),
        ("smtps://relay:4650", ("relay", 4650, "", "", "tls", "")),
        ("smtp+starttls://a%40b:p%2Fw@relay", ("relay", 587, "a@b", "p/w", "starttls", "")),
        ("file:///var/mail", ("", 0, "", "", "", "/var/mail")),
    ],
)
def test_a_mail_server_is_an_address(
    monkeypatch: pytest.MonkeyPatch, url: str, parts: tuple[object, ...]
) -> None:
    monkeypatch.setenv("MAIL_URL", url)
    found = env.env_mail("MAIL_URL")
    assert found is not None
    assert (found.host, found.port, found.user, found.password, found.security, found.folder) == parts
    assert found.password not in repr(found) or not found.password


@pytest.mark.parametrize(
    "url", ["relay:25", "http://relay", "smtp://", "smtp://u:p@h/x", "file://h/x", "smtp://h:port"]
)
def test_what_is_no_mail_server_is_refused_without_its_password(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("MAIL_URL", url)
    with pytest.raises(env.BadSetting) as refusal:
        env.env_mail("MAIL_URL")
    assert "u:p" not in str(refusal.value)


def test_without_a_mail_server_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAIL_URL", raising=False)
    assert env.env_mail("MAIL_URL") is None
