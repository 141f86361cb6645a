"""A Kerberos of its own: MIT's KDC on a free port of this host, with its database and configuration in a folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

from tests.support.jars import MissingProgram
from tests.support.processes import Process, free_port

if TYPE_CHECKING:
    from pathlib import Path

REALM: Final = "BARNABAS.TEST"


class Kdc(Process):
    """`krb5kdc`; no service of the system is touched."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.config = folder / "krb5.conf"
        port = free_port()
        self.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
        )
        (folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n"
            f"  acl_file = {folder}/kadm5.acl\n }}\n"
        )
        self.env = {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{folder}/tickets",
            "KRB5RCACHENAME": f"dfl:{folder}",
            "KRB5RCACHEDIR": str(folder),
        }
        self._run(program("kdb5_util"), "create", "-s", "-r", REALM, "-P", "master")
        super().__init__("krb5kdc", [program("krb5kdc"), "-n"], folder / "kdc.log", self.env)
        try:
            self.wait_for_output(r"starting\.\.\.")
        except BaseException:
            self.kill()
            raise

    def add(self, principal: str) -> Path:
        """Add a principal; gives its keytab."""
        keytab = self._folder / f"{principal.replace('/', '-')}.keytab"
        for query in (f"addprinc -randkey {principal}", f"ktadd -k {keytab} {principal}"):
            self._run(program("kadmin.local"), "-r", REALM, "-q", query)
        return keytab

    def log_in(self, principal: str, keytab: Path) -> None:
        """Get a ticket for programs that use the one of their user."""
        self._run(program("kinit"), "-k", "-t", str(keytab), f"{principal}@{REALM}")

    def _run(self, *words: str) -> None:
        env = {**os.environ, **self.env}
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"


def program(name: str) -> str:
    """A program of MIT's Kerberos; those of servers are where only root looks."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise MissingProgram(f"{name} is not installed: run `sh scripts/prerequisites.sh`, which installs or names it")
    return found
