"""Logins join the slice of their account's booking, by a step of PAM."""

import subprocess

from agent.ports.systemd import unit_of
from agent.unit import unit_text
from tests.agent.owner.systemd_fake import Fake


def pam(fake: Fake, user: str, *arguments: str, kind: str = "open_session") -> tuple[int, str]:
    """Runs the login's step with its folders moved to the test's."""
    text = unit_text("gpu-booking-session", fake.folder)
    for old, new in (
        ("/run/gpu-agent/logins", str(fake.folder / "logins")),
        ("PATH=/usr/sbin", f"PATH={fake.folder}:/usr/sbin"),
        ('"/proc/$PPID/cgroup"', f'"{fake.folder}/moved"'),
    ):
        assert old in text
        text = text.replace(old, new)
    done = subprocess.run(
        ["/bin/sh", "-c", text, "sh", *arguments],
        env={"PAM_USER": user, "PAM_TYPE": kind},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_login_joins_its_account_s_slice_or_is_refused_by_choice(fake: Fake) -> None:
    nobody = 65534
    (fake.folder / "logins").mkdir()
    listed = fake.folder / "logins" / str(nobody)
    assert pam(fake, "nobody") == (0, "")
    code, said = pam(fake, "nobody", "require")
    assert (code, said) == (1, "No GPU booking of nobody has devices on this node now.\n")
    assert pam(fake, "root", "require") == (0, "")
    listed.write_text("gpu-booking-1001.helix.BK.slice\n")
    assert pam(fake, "nobody", "require")[0] == 1, "of another account"
    unit = unit_of(nobody, "helix.BK-12")
    listed.write_text(f"{unit}\n")
    (fake.folder / "moved").write_text(f"0::/gpu.slice/gpu-booking.slice/{unit}/gpu-login-1.scope\n")
    assert pam(fake, "nobody", kind="close_session") == (0, "")
    assert not (fake.folder / "calls").exists()
    assert pam(fake, "nobody") == (0, "")
    (call,) = fake.calls()
    assert call.endswith(f"Slice s {unit} 0")
    fake.refuse(on=True)
    assert pam(fake, "nobody")[0] == 1
