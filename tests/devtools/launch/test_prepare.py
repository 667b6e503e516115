"""The error of a demo that cannot continue from existing data."""

from pathlib import Path

import pytest
from django.db import connection

from devtools.demo import prepare, site
from tenants.platform.errors import invalid
from tests.roles import as_role


@pytest.mark.django_db
def test_data_of_another_day_that_can_not_go_on_names_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(**_: object) -> int:
        raise invalid("window_past", "This window is over.", "starts")

    monkeypatch.setattr(site, "seed", refused)
    # `make demo` prints the sentence, and no traceback.
    monkeypatch.setattr(prepare, "call_command", lambda *_, **__: None)
    with pytest.raises(SystemExit, match=r"window is over.*`make clean-demo` removes it"):
        prepare.main(tmp_path, [])


@pytest.mark.django_db
def test_data_of_other_migrations_names_the_way_out_and_nothing_is_migrated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with as_role("portal_owner"), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('billing', '0002_ledger', now())"
        )
    called: list[str] = []
    monkeypatch.setattr(prepare, "call_command", lambda name, **_: called.append(name))
    with pytest.raises(SystemExit, match=r"Another version .* `make clean-demo` removes it"):
        prepare.main(tmp_path, [])
    assert called == []
