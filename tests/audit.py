"""`make audit`: known vulnerabilities of the packages that the portal installs.

pip-audit asks the index's advisory database about every pinned version. Without an answer nothing
is proven, so that is said and counts as a failure, too: 1 is a vulnerability, 3 is "could not ask".
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parents[1] / "requirements.lock"
VULNERABLE, NOT_ASKED = 1, 3


def verdict(packages: Iterable[Mapping[str, Any]]) -> tuple[int, list[str]]:
    """The exit status and what to print, of the `dependencies` in pip-audit's JSON report."""
    packages = list(packages)
    skipped = [each["name"] for each in packages if "skip_reason" in each]
    asked = len(packages) - len(skipped)
    lines = [
        f"{each['name']} {each['version']}: {fault['id']}, fixed in "
        f"{', '.join(fault['fix_versions']) or 'no version yet'}"
        for each in packages
        for fault in each.get("vulns", ())
    ]
    if lines:
        return VULNERABLE, lines
    if not asked:
        return NOT_ASKED, ["Not audited: the index has no advisories for any package."]
    if skipped:
        names = ", ".join(sorted(skipped))
        return NOT_ASKED, [f"{asked} packages have no known vulnerability. Not audited: {names}."]
    return 0, [f"{asked} packages have no known vulnerability."]


def main() -> int:
    """Ask about requirements.lock."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(LOCK), "--disable-pip"]
    command += ["--require-hashes", "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:
        reason = (done.stderr.strip().splitlines() or ["pip-audit gave no reason"])[-1]
        status, lines = NOT_ASKED, [f"Not audited: the advisory source did not answer. {reason}"]
    else:
        status, lines = verdict(packages)
    sys.stdout.write("\n".join(lines) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
