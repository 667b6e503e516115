"""`gpu-agent`: enrols the node and runs its agent until it is stopped.

Other commands: `run` and `saved` (run.py), `notebook` (notebook.py), `doctor` (doctor/command.py)
and `unit` (unit.py).
`python -m agent` is the same program in a checkout.
"""

import contextlib
import dataclasses
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence

from agent import notebook, run, unit
from agent.assembly import IDENTITY, node_assemble
from agent.doctor import command
from agent.engine import command as engine
from agent.hardware import REAL, Platform, hardware_open
from agent.options import options_parse
from agent.owner.accounts import AccountDirectory
from agent.ports.gpu import GpuError
from agent.ports.link import Link
from agent.ports.systemd import Supervisor
from agent.process import Agent, Stop
from agent.report.examination import Examiner, doctor_command
from agent.state.enrol import EnrolmentRefused, Identity, identity_ensure
from agent.state.store import StoreError, folder_locked

log = logging.getLogger("agent")

ACCOUNTS = "accounts.json"


def main(arguments: Sequence[str], environment: Mapping[str, str], platform: Platform = REAL) -> int:
    """Returns 0 after a stop, 1 when the node can't be served."""
    match arguments[:1]:
        case ["run"]:
            return run.main(arguments[1:], environment)
        case ["saved"]:
            return run.saved(arguments[1:], environment)
        case ["notebook"]:
            return notebook.main(arguments[1:], environment)
        case ["doctor"]:
            drivers = command.Drivers(platform.driver, platform.amd_load, is_simulated=platform.is_simulated)
            return command.main(arguments[1:], environment, drivers)
        case ["unit"]:
            return unit.main(arguments[1:])
    return _serve_always(arguments, environment, platform)


def _serve_always(arguments: Sequence[str], environment: Mapping[str, str], platform: Platform) -> int:
    options = options_parse(arguments, environment)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    if options.engine != "device":
        return engine.main(options, environment)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(folder_locked(options.state))
            directory = AccountDirectory(options.state / ACCOUNTS)
            hardware = hardware_open(platform, options, directory, stack)
            identity = identity_ensure(
                options.state / IDENTITY,
                options.portal,
                options.token,
                hardware.inventory,
                again=options.enrol_again,
            )
            supervisor = Supervisor(environment)
            node = node_assemble(options, identity, hardware, directory, stack)
            agent = Agent(dataclasses.replace(node, alive=supervisor.alive))
            examiner = Examiner(doctor_command(platform.doctor, options), environment, agent.inbox.put)
            stack.callback(examiner.stop)
            _serve(agent, identity, supervisor, examiner)
    except (EnrolmentRefused, GpuError, StoreError, OSError, ValueError) as error:
        log.error("%s", error)  # noqa: TRY400 - the message says it all
        return 1
    return 0


def _serve(agent: Agent, identity: Identity, supervisor: Supervisor, examiner: Examiner) -> None:
    link = Link(url=identity.redis_url, node=identity.node, deliver=agent.inbox.put)
    # A signal only asks the loop to end, so that no step is cut in half.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.inbox.put(Stop()))
    log.info("serving as node %s", identity.node)
    link.start()
    supervisor.ready()
    examiner.start()
    agent.run(link)
    supervisor.stopping()
    link.stop()
    log.info("stopped; programs on the GPUs continue")


def console() -> int:
    """Entry point of the program `gpu-agent`."""
    return main(sys.argv[1:], os.environ)


if __name__ == "__main__":
    sys.exit(console())
