"""RequestFiles: the file in which a site saves how far its requests are, as a part of the queue's directory.

A site that does not find `site/progress.json` would take that for its first start, begin every request at its `from`,
and never ask for what was put elsewhere meanwhile. So the number `requests` in the control file says that there was
one, and a site refuses to start without it. To begin again is a decision of the operator: a repair forgets the number.

Not here: what is in the file (relay/receive/progress.py).
"""

from pathlib import Path

from headrace.errors import QueueDamagedError
from headrace.kernel import _kernel as kernel
from headrace.log.explain import REPAIR
from headrace.log.seams import Storage

AGAIN = (
    'each request then begins again at its `from`. Where that is "now", what was put elsewhere since this site last '
    'received is not requested: set such a request to an age or to "oldest" first; products that are here already '
    "are dropped as duplicates"
)


def check_requests(log: kernel.Log, path: Path) -> None:
    """QueueDamagedError if the site of this queue has saved how far its requests are, and the file is missing."""
    file = path / RequestFiles.file
    if log.state["requests"] and not file.exists():
        raise QueueDamagedError(
            f"{file} is missing, though this site has received from other sites",
            f"restore the file. Or begin again: {REPAIR.format(path=path)}; {AGAIN}",
        )


def note_requests(log: kernel.Log) -> None:
    """The file has been saved with positions: from now on it must not be missing."""
    if not log.state["requests"]:
        log.set_state(requests=1)


def has_site(path: Path) -> bool:
    """Whether a site has run at the queue: then its configuration may name terms of the queue and of its channels."""
    return (path / RequestFiles.file).parent.is_dir()


class RequestFiles:
    """The part of the file in opening, checking and repairing a queue (log/seams.py: Resident)."""

    file = "site/progress.json"

    def validate(self, path: Path) -> None:
        """The queue is used without it, too; a site validates it when it starts."""

    def settle(self, log: kernel.Log, path: Path, storage: Storage, trusted: bool) -> None:
        """There is nothing to do."""

    def forget(self, log: kernel.Log, path: Path) -> list[str]:
        """Without the file, each request begins again at its `from`."""
        if (path / self.file).exists() or not log.state["requests"]:
            return []
        log.set_state(requests=0)
        return [f"{path / self.file} is missing: {AGAIN}"]

    def check(self, log: kernel.Log, path: Path) -> list[str]:
        """Whether it is missing."""
        if log.state["requests"] and not (path / self.file).exists():
            return ["it is missing, though the site of this queue has received from other sites"]
        return []
