"""Damage to the files of a queue."""

from pathlib import Path


def flip_bit(path: Path, payload: bytes) -> None:
    """Flip the lowest bit of a stored payload, in the file of its segment; a second call with the result repairs it."""
    for segment in (path / "segments").iterdir():
        place = segment.read_bytes().find(payload)
        if place >= 0:
            with segment.open("r+b") as file:
                file.seek(place)
                file.write(bytes([payload[0] ^ 1]))
            return
    raise AssertionError(f"{payload!r} is in no segment")
