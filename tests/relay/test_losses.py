"""Losses of a request are kept over restarts of its site."""

from pathlib import Path

import pytest

from headrace.relay.receive.counts import Tally
from headrace.relay.receive.losses import KEPT_S, LossFile


def lose(tally: Tally, at: float = 0.0) -> None:
    tally.upstream("wx", "denver").lose(5, 9, "evicted", at)
    tally.upstream("wx", "boulder")


def test_a_restarted_site_still_knows_what_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr("time.time_ns", lambda: int(now * 1e9) + 10**18)
    tally, file = Tally(), LossFile(tmp_path)
    file.restore(tally)
    lose(tally, 990.0)
    file.save(tally)
    now = 4600.0
    restarted = Tally()
    LossFile(tmp_path).restore(restarted)
    counts = restarted.upstream("wx", "denver")
    assert (counts.lost, counts.lost_sequences, counts.lost_by) == ([(5, 9, "evicted")], 5, {"evicted": 5})
    assert (counts.left_out, counts.left_out_at) == ({"evicted": 5}, {"evicted": 990.0})
    assert list(restarted.upstreams()) == [("wx", "denver")]
    now += KEPT_S
    later = Tally()
    LossFile(tmp_path).restore(later)
    assert later.upstream("wx", "denver").lost == []


def test_the_file_is_written_when_something_was_lost_or_taken_back(tmp_path: Path) -> None:
    tally, file = Tally(), LossFile(tmp_path)
    file.save(tally)
    assert not (tmp_path / "site").exists()
    lose(tally)
    file.save(tally)
    path = tmp_path / "site" / "losses.json"
    before = path.stat().st_mtime_ns, path.stat().st_ino
    file.save(tally)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    tally.upstream("wx", "denver").lost = []
    file.save(tally)
    assert path.read_bytes() == b"[]"


def test_counts_that_are_in_use_are_not_restored_again(tmp_path: Path) -> None:
    """A site reads its file again when it is reloaded, and keeps its counts."""
    tally, file = Tally(), LossFile(tmp_path)
    lose(tally)
    file.save(tally)
    LossFile(tmp_path).restore(tally)
    assert tally.upstream("wx", "denver").lost_sequences == 5


@pytest.mark.parametrize("content", [b"", b"{", b'[{"request": 5}]', b"\xff"])
def test_a_damaged_file_is_logged_and_replaced(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "losses.json").write_bytes(content)
    tally, file = Tally(), LossFile(tmp_path)
    file.restore(tally)
    assert "earlier losses are not known" in caplog.text
    lose(tally)
    file.save(tally)
    LossFile(tmp_path).restore(restarted := Tally())
    assert restarted.upstream("wx", "denver").lost_sequences == 5
