"""A Slurm with accounting: slurmdbd on a MariaDB of its own, which asks for an association of each user."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from devtools.launch.embedded import free_port
from tests.servers.waiting import wait_until
from tests.slurm.cluster import RESERVATION, Cluster

PROGRAMS = ("slurmdbd", "sacctmgr", "mariadbd", "mariadb-install-db")

_CONF = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={root}/munge/socket
AccountingStorageEnforce=associations
"""
_DBD = """\
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={sql}
StorageUser=slurm
StoragePass=slurm
LogFile={root}/log/slurmdbd.log
PidFile={root}/run/slurmdbd.pid
"""


class AccountedCluster(Cluster):
    """See Cluster. It has the account `chem`, and no user."""

    def controller_start(self) -> None:
        """Starts what it needs before, the first time."""
        if "slurmdbd" not in self._running:
            self._accounting_start()
        super().controller_start()

    def reservation_make(self, nodes: Sequence[str]) -> None:
        """Holds these nodes for the account: Slurm refuses users without an association here."""
        self.run(
            *("scontrol", "create", "reservation", f"ReservationName={RESERVATION}", "StartTime=now"),
            *("Duration=UNLIMITED", "Accounts=chem", f"Nodes={','.join(nodes)}", "Flags=IGNORE_JOBS"),
        )

    def _write(self) -> None:
        super()._write()
        self._port, self._sql = free_port(), free_port()
        text = self.conf.read_text()
        none = "AccountingStorageType=accounting_storage/none\n"
        assert none in text
        self.conf.write_text(text.replace(none, _CONF.format(port=self._port, root=self.root)))
        dbd = self.conf.parent / "slurmdbd.conf"
        dbd.write_text(_DBD.format(root=self.root, port=self._port, sql=self._sql))
        dbd.chmod(0o600)

    def _accounting_start(self) -> None:
        data: Path = self.root / "sql"
        self._made("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root")
        socket = f"--socket={self.root}/sql.sock"
        options = (f"--datadir={data}", socket, f"--port={self._sql}", "--bind-address=127.0.0.1")
        self._start("mariadbd", "mariadbd", "--no-defaults", "--user=root", *options)
        grant = "GRANT ALL ON *.* TO slurm@'%' IDENTIFIED BY 'slurm'; GRANT ALL ON *.* TO slurm@localhost"
        client = ("mariadb", "--no-defaults", socket, "--execute", f"{grant} IDENTIFIED BY 'slurm'")
        wait_until(lambda: self._try(*client).returncode == 0, seconds=60)
        self._start("slurmdbd", "slurmdbd", "-D")
        add = ("sacctmgr", "--immediate", "add")
        wait_until(lambda: self._try(*add, "cluster", "portaltest").returncode == 0, seconds=60)
        self.run(*add, "account", "chem", "cluster=portaltest")
        self.run(*add, "user", "root", "account=chem")

    def _made(self, *command: str) -> None:
        subprocess.run(command, env=self.environment, check=True, capture_output=True, timeout=120)


def lacking() -> list[str]:
    """Returns the programs that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path="/usr/bin:/usr/sbin:/sbin:/bin") is None]
