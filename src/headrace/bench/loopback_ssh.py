"""An SSH server on a loopback port with a throwaway key, so that rsync and scp run as between two machines."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_START_S = 10.0
_SEPARATION = Path("/run/sshd")


@dataclass(frozen=True, slots=True)
class LoopbackSsh:
    """A server that runs; `copies` are the commands that copy a file through it."""

    port: int
    key: Path

    def _options(self) -> list[str]:
        return [
            "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
            "-o", "BatchMode=yes", "-i", str(self.key),
        ]  # fmt: skip

    def copies(self, file: Path, to: Path) -> dict[str, list[str]]:
        """The commands that are installed, by their names."""
        where = f"{getpass.getuser()}@127.0.0.1:{to}"
        shell = " ".join(["ssh", "-p", str(self.port), *self._options()])
        commands = {
            "rsync": ["rsync", "--whole-file", "-e", shell, str(file), where],
            "scp": ["scp", "-q", "-P", str(self.port), *self._options(), str(file), where],
        }
        return {name: words for name, words in commands.items() if shutil.which(name)}


@contextmanager
def loopback_ssh(folder: Path) -> Iterator[LoopbackSsh | None]:
    """Run a server as this user; None if there is none, or it does not start."""
    program = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if program is None or shutil.which("ssh-keygen") is None or shutil.which("ssh") is None:
        yield None
        return
    folder.mkdir(mode=0o700)
    port = _free_port()
    try:
        _configure(folder, port)
        words = [program, "-D", "-e", "-f", str(folder / "sshd_config")]
        made = _make_separation()
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield LoopbackSsh(port, folder / "key") if _has_started(server, port) else None
        finally:
            server.kill()
            server.wait()
            if made:
                _SEPARATION.rmdir()
    finally:
        shutil.rmtree(folder)


def _make_separation() -> bool:
    """A server that root starts needs this empty directory, which the system makes for its own one."""
    if os.geteuid() != 0 or _SEPARATION.exists():
        return False
    _SEPARATION.mkdir(mode=0o755)
    return True


def _configure(folder: Path, port: int) -> None:
    for name in ("key", "host_key"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True, capture_output=True, timeout=60)
    shutil.copy(folder / "key.pub", folder / "authorized")
    os.chmod(folder / "authorized", 0o600)
    lines = [
        f"Port {port}", "ListenAddress 127.0.0.1", f"HostKey {folder}/host_key", f"PidFile {folder}/pid",
        f"AuthorizedKeysFile {folder}/authorized", "StrictModes no", "UsePAM no", "PasswordAuthentication no",
        "PermitRootLogin prohibit-password", "Subsystem sftp internal-sftp",
    ]  # fmt: skip
    (folder / "sshd_config").write_text("\n".join(lines) + "\n")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _has_started(server: "subprocess.Popen[bytes]", port: int) -> bool:
    until = time.monotonic() + _START_S
    while time.monotonic() < until and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.05)
    return False
