"""Slurm as the options say: by its commands, or by slurmrestd."""

import argparse

from agent.slurm.commands import SlurmCommands
from agent.slurm.port import SlurmPort
from agent.slurm.rest import RestAccess, SlurmRest


def slurm_open(options: argparse.Namespace) -> SlurmPort:
    """Raises ValueError."""
    partition = getattr(options, "partition", None)
    if not options.slurmrestd:
        return SlurmCommands(options.reservation, partition)
    if options.slurm_token is None:
        raise ValueError("slurmrestd needs --slurm-token: without one jobs are not their owners'")
    access = RestAccess(options.slurmrestd, options.slurm_token, options.slurm_cluster or "")
    return SlurmRest(access, options.reservation, partition)
