"""Which account of Slurm a job is charged to, and whether its owner may use it. Pure."""

import dataclasses
from collections.abc import Iterable, Mapping

from wire import DesiredAllocation

ALL = "*"


@dataclasses.dataclass(frozen=True, slots=True)
class Association:
    """A user of an account in Slurm's accounting."""

    user: str
    account: str


def charges_parse(text: str) -> dict[str, str]:
    """Returns the account of each `ORGANISATION/PROJECT` or `ORGANISATION`, `*` for all others: of
    `helix/llm=chem,helix=bio,*=guests`, or of one account for all. Raises ValueError."""
    found = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        whose, mark, account = part.rpartition("=")
        if not account or (mark and not whose):
            raise ValueError(f"{part!r}: write ACCOUNT, or ORGANISATION/PROJECT=ACCOUNT")
        found[whose or ALL] = account
    return found


def account_charged(charges: Mapping[str, str], allocation: DesiredAllocation) -> str:
    """Returns the account of an allocation; empty: the owner's default one."""
    keys = (f"{allocation.tenant}/{allocation.project}", allocation.tenant, ALL)
    return next((charges[key] for key in keys if key in charges), "")


def associations_parse(text: str) -> frozenset[Association]:
    """Reads `sacctmgr --parsable2 --noheader show associations format=User,Account`."""
    rows = (line.split("|") for line in text.splitlines())
    return frozenset(Association(row[0], row[1]) for row in rows if len(row) == 2 and row[0])


def refusal_of(associations: Iterable[Association] | None, user: str, account: str) -> str:
    """Says why Slurm would refuse the job of a user; empty: it would not, or nobody knows."""
    if associations is None:
        return ""
    accounts = {each.account for each in associations if each.user == user}
    if not accounts:
        return f"{user} has no association in Slurm: sacctmgr add user {user} account={account or 'ACCOUNT'}"
    if account and account not in accounts:
        return (
            f"{user} has no association with the account {account} in Slurm, only with"
            f" {', '.join(sorted(accounts))}: sacctmgr add user {user} account={account}"
        )
    return ""
