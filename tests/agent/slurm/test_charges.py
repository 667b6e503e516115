"""Which account of Slurm a job is charged to, and who may use it."""

import dataclasses

import pytest

import wire
from agent.options import options_parse
from agent.slurm.charges import (
    Association,
    account_charged,
    associations_parse,
    charges_parse,
    refusal_of,
)
from tests.agent.builders import a_whole

CHARGES = "biology/llm=chem, biology=bio,*=guests"


def of(project: str | None) -> wire.DesiredAllocation:
    return dataclasses.replace(a_whole("a"), project=project)


# As sacctmgr 22.05.8 prints them: the line of an account has no user.
KNOWN = associations_parse("|root\nroot|root\n|chem\nada|chem\nada|bio\nben|bio\n")


def test_accounts_are_named_by_project_organisation_and_for_all() -> None:
    charges = charges_parse(CHARGES)
    assert account_charged(charges, of("llm")) == "chem"
    assert account_charged(charges, of("other")) == "bio"
    assert account_charged(charges, of(None)) == "bio"
    assert account_charged(charges_parse("all"), of("llm")) == "all"
    assert account_charged(charges_parse("helix=x"), of("llm")) == ""
    assert options_parse(["--slurm-account", CHARGES], {}).slurm_account == charges
    assert options_parse([], {}).slurm_account == {}


@pytest.mark.parametrize("text", ["=chem", "biology=", "a=b,="])
def test_a_mapping_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ORGANISATION/PROJECT=ACCOUNT"):
        charges_parse(text)


def test_a_missing_association_is_said_with_its_remedy() -> None:
    assert Association("ada", "chem") in KNOWN
    assert len(KNOWN) == 4
    assert refusal_of(KNOWN, "ada", "chem") == refusal_of(KNOWN, "ben", "") == ""
    assert refusal_of(None, "eva", "chem") == ""
    assert refusal_of(KNOWN, "ben", "chem") == (
        "ben has no association with the account chem in Slurm, only with bio:"
        " sacctmgr add user ben account=chem"
    )
    assert refusal_of(KNOWN, "eva", "chem") == (
        "eva has no association in Slurm: sacctmgr add user eva account=chem"
    )
