"""Shell scripts that stand in for an interpreter: for `java` (java.py) and for `python` on the driver (packing.py)."""

from pathlib import Path

from headrace.log.documents import replace_file
from headrace.log.locks import locked


def write_script(path: Path, text: str) -> None:
    """Make `text` the executable file at `path`. Several processes may call this at once; OSError if it fails."""
    if _has(path, text):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(f".{path.name}.lock")):
        if not _has(path, text):
            replace_file(path, text.encode(), None, mode=0o755)


def _has(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text
