"""`make audit` distinguishes a vulnerability, a clean list and no answer."""

import pytest

from tests.audit import NOT_ASKED, VULNERABLE, verdict

CLEAN = {"name": "django", "version": "5.2.19", "vulns": []}
FAULT = {"name": "lark", "version": "1.3", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.4"]}]}
SKIPPED = {"name": "vine", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("packages", "status", "said"),
    [
        ([CLEAN], 0, "1 packages have no known vulnerability."),
        ([CLEAN, FAULT, SKIPPED], VULNERABLE, "lark 1.3: PYSEC-1, fixed in 1.4"),
        ([CLEAN, SKIPPED], NOT_ASKED, "1 packages have no known vulnerability. Not audited: vine."),
        ([SKIPPED], NOT_ASKED, "Not audited: the index has no advisories for any package."),
        ([], NOT_ASKED, "Not audited: the index has no advisories for any package."),
    ],
    ids=["clean", "vulnerable", "some not known", "nothing known", "nothing"],
)
def test_an_audit_without_an_answer_is_no_clean_one(
    packages: list[dict[str, object]], status: int, said: str
) -> None:
    assert verdict(packages) == (status, [said])
