"""Packed environments, as far as nothing is packed."""

import os
from pathlib import Path

from headrace.pipeline.spark import packing


def test_old_archives_are_removed_even_if_another_process_does_the_same(tmp_path: Path) -> None:
    archives = [tmp_path / f"{number}.tar.gz" for number in range(packing.KEPT + 2)]
    for age, path in enumerate(archives):
        path.touch()
        os.utime(path, (1e9 - age, 1e9 - age))
    gone = tmp_path / "gone.tar.gz"
    gone.symlink_to(tmp_path / "nowhere")  # listed, but not found when it is opened
    packing._tidy(tmp_path)
    assert sorted(tmp_path.iterdir()) == [*archives[: packing.KEPT], gone]
