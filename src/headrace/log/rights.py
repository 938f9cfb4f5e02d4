"""Rights: who on this machine may use the files of a queue.

They are chosen when the queue is created, by a mode and a group, and kept by its directory: every file that is added
later gets the rights of its folder (headrace.files). With a group, the directory has the set-group-ID bit, so that new
files belong to that group, too, whichever member creates them.

    mode 0640, the default   the owner puts and reads; the group reads, and needs no write access for it
    mode 0660                the group puts, too
    mode 0600                the owner alone

Whoever may write into the directory can do anything with the queue, also damage it.
"""

import grp
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import OptionError
from headrace.files import file_mode

MODE = 0o640


@dataclass(frozen=True, slots=True)
class Rights:
    """The mode of the files of a queue, and their group; None: that of the process that creates it."""

    mode: int = MODE
    group: str | None = None

    def __post_init__(self) -> None:
        if self.mode & ~0o664 or self.mode & 0o600 != 0o600 or self.mode & 0o060 == 0o020:
            raise OptionError(
                f"mode {self.mode:04o} is invalid",
                "choose 0600 (the owner), 0640 (its group reads), 0660 (its group writes) or 0644 (everybody reads)",
            )

    @property
    def folder_mode(self) -> int:
        """Of a directory: who may read may also enter. With a group, new files belong to it."""
        return self.mode | (self.mode & 0o444) >> 2 | (0o2000 if self.group is not None else 0)

    def give(self, folder: Path) -> None:
        """Give the rights to a folder that is still empty. OSError if the operating system refuses."""
        if self.group is not None:
            os.chown(folder, -1, group_id(self.group))
        folder.chmod(self.folder_mode)


def parse_mode(text: str | int) -> int:
    """A mode as people write it, in octal: "0640". OptionError if it is none."""
    if isinstance(text, int):
        return text
    try:
        return int(text.removeprefix("0o"), 8)
    except ValueError:
        raise OptionError(f"mode {text!r} is not an octal number", "write it as chmod does, such as 0640") from None


def rights_of(folder: Path) -> Rights:
    """The rights that new files of a queue get. OSError if there is no such folder."""
    status = os.stat(folder)
    is_kept = status.st_mode & stat.S_ISGID
    return Rights(file_mode(folder) & 0o664, group_name(status.st_gid) if is_kept else None)


def group_name(number: int) -> str:
    """The name of a group; its number if it has none."""
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def group_id(group: str) -> int:
    """The number of a group by its name, or in digits. OptionError if there is none."""
    try:
        return int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    except (KeyError, OverflowError):
        raise OptionError(f"there is no group {group!r}", "see: getent group") from None
