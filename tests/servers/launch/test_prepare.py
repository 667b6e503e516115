"""The error of a demo that cannot continue from existing data."""

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from portal.launch import prepare
from portal.management.commands import seed_demo
from tenants.platform.errors import invalid


def test_data_of_another_day_that_can_not_go_on_names_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(**_: object) -> int:
        raise invalid("window_past", "This window is over.", "starts")

    monkeypatch.setattr(seed_demo, "seed", refused)
    with pytest.raises(CommandError, match=r"window is over.*`make clean-demo` removes it"):
        call_command("seed_demo")

    # `make demo` prints the sentence, and no traceback.
    really = call_command
    monkeypatch.setattr(
        prepare, "call_command", lambda name, **k: name == "migrate" or really(name, **k)
    )
    with pytest.raises(SystemExit, match="`make clean-demo` removes it"):
        prepare.main(tmp_path, [])
