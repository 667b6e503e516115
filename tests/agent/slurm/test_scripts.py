"""The batch script of a booking's script, and what is read when it has ended."""

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from agent.slurm.scripts import (
    ScriptPlace,
    exit_code_kept,
    exit_code_read,
    holder_text,
    log_tail,
    script_text,
)
from wire import SCRIPT_LOG_LENGTH

ME = pwd.getpwuid(os.geteuid())


@pytest.mark.parametrize(
    ("said", "code"), [("0:0", 0), ("7:0", 7), ("0:9", 137), ("0:15", 143), ("255:0", 255), ("3", 3)]
)
def test_a_signal_counts_as_a_shell_counts_it(said: str, code: int) -> None:
    assert exit_code_read(said) == code


def test_the_batch_script_keeps_text_output_and_exit_code(tmp_path: Path) -> None:
    place = ScriptPlace(str(tmp_path), f"{tmp_path}/it's a $folder")
    text = "echo \"$GPU_BOOKING\" '`$x`' in $(pwd)\nexit 3\n"
    batch = script_text(text, "helix.BK-12", ME.pw_name, place, 10)
    environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7"}

    def run() -> int:
        return subprocess.run(
            ["bash"], input=batch.encode(), env=environment, timeout=30, check=False
        ).returncode

    assert run() == 3
    log = place.log("helix.BK-12", 7)
    assert Path(log).read_text() == f"BK-12 `$x` in {tmp_path}\n"
    assert Path(log).with_suffix(".sh").read_text() == text
    # A file that is there already is nobody's to write to.
    assert run() == 73
    assert Path(log).read_text() == f"BK-12 `$x` in {tmp_path}\n"


def test_homes_and_missing_accounts_are_known() -> None:
    assert ScriptPlace.of(ME.pw_name, "~/logs").folder == f"{ME.pw_dir}/logs"
    assert ScriptPlace.of(ME.pw_name, "/scratch").log("helix.BK-1", 4) == "/scratch/helix.BK-1.4.log"
    with pytest.raises(OSError, match="no account"):
        ScriptPlace.of("nobody-of-that-name", "~/logs")


@pytest.mark.skipif(os.geteuid() != 0, reason="other accounts are entered by root")
def test_files_are_read_as_their_owner(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    log = tmp_path / "a.log"
    log.write_text("x" * 5 * SCRIPT_LOG_LENGTH + "\x1b[1mend\n")
    assert log_tail(str(log), ME.pw_name) == ("x" * SCRIPT_LOG_LENGTH + "[1mend\n")[-SCRIPT_LOG_LENGTH:]
    log.with_suffix(".exit").write_text("17\n")
    assert exit_code_kept(str(log), ME.pw_name) == 17
    log.with_suffix(".exit").write_text("-1\n")
    assert exit_code_kept(str(log), ME.pw_name) is None
    # What the owner may not read is not read for them, and a link changes nothing.
    log.chmod(0o600)
    link = tmp_path / "link.log"
    link.symlink_to(log)
    assert log_tail(str(link), "games") == ""
    assert exit_code_kept(str(tmp_path / "none.log"), "games") is None


def test_a_holder_has_the_signal_of_a_notice() -> None:
    assert "\nNOTICE=10\n" in holder_text(10)
    assert "\nNOTICE=''\n" in holder_text(None)
