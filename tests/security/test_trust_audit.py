"""The audit log: who joined, was refused, changed what; whatever a hostile client does, it stays bounded and readable."""

import json
from pathlib import Path

import pytest

from headrace.link.audit import PRINCIPALS_MAX, TEXT_MAX, Audit
from headrace.link.audit_files import SERIES, Files, Series, lines_of, paths_of
from headrace.site.audit_problems import audit_problems


class Time:
    def __init__(self) -> None:
        self.s = 1e9

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def audit(tmp_path: Path, time: Time) -> Audit:
    return Audit(tmp_path, now_s=time, monotonic_s=time)


def entries(folder: Path, series: Series) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines_of(folder, series)]


def test_a_line_says_who_did_what_to_what_and_when(audit: Audit, tmp_path: Path) -> None:
    audit.note("station removed", "radar", principal="alice", peer="tcp/192.0.2.1:5")
    assert entries(tmp_path, "changes") == [{
        "time": "2001-09-09T01:46:40.000Z", "principal": "alice", "peer": "tcp/192.0.2.1:5",
        "action": "station removed", "subject": "radar",
    }]  # fmt: skip


def test_a_refusal_says_why(audit: Audit, tmp_path: Path) -> None:
    audit.refuse("put", "wx/a", principal=None, why="no rule")
    (line,) = entries(tmp_path, "refusals")
    assert (line["outcome"], line["detail"], "principal" in line) == ("refused", "no rule", False)


def test_a_hostile_client_cannot_flush_the_log_and_its_refusals_are_counted(
    audit: Audit, tmp_path: Path, time: Time
) -> None:
    audit.note("station removed", "radar", principal="mallory")
    for _ in range(100_000):
        audit.refuse("put", "wx/a", principal="mallory")
    audit.refuse("put", "wx/b", principal="alice")
    assert len(entries(tmp_path, "refusals")) == SERIES["refusals"].burst + 1
    time.s += 60
    audit.refuse("put", "wx/c", principal="mallory")
    last = entries(tmp_path, "refusals")[-1]
    assert (last["subject"], last["left_out"]) == ("wx/c", 100_000 - SERIES["refusals"].burst)
    assert len(entries(tmp_path, "changes")) == 1


def test_what_was_left_out_at_the_end_is_counted_when_the_site_stops(audit: Audit, tmp_path: Path) -> None:
    for _ in range(50):
        audit.refuse("put", "wx/a", principal="mallory")
    audit.close()
    audit.close()
    last = entries(tmp_path, "refusals")[-1]
    assert (last["principal"], last["action"], last["left_out"]) == ("mallory", "more of these", 30)
    assert audit.statistics().left_out == 30


def test_text_from_elsewhere_is_cut_and_stays_one_line_of_ascii(audit: Audit, tmp_path: Path) -> None:
    audit.refuse("login", "x" * 10_000, principal=None, why="evil\n\x1b[2J\u202e\u009b{}")
    (line,) = lines_of(tmp_path, "refusals")
    assert line.isascii()
    assert b"\x1b" not in line
    assert json.loads(line)["subject"] == "x" * TEXT_MAX


def test_files_are_bounded_and_the_oldest_lines_go_first(tmp_path: Path) -> None:
    files = Files(tmp_path, "refusals", file_bytes=100)
    for number in range(100):
        files.append(b"%09d\n" % number)
    assert [int(line) for line in lines_of(tmp_path, "refusals")] == list(range(60, 100))
    assert sorted(tmp_path.iterdir()) == sorted(paths_of(tmp_path, "refusals"))
    assert all(path.stat().st_size <= 100 for path in tmp_path.iterdir())


def test_only_the_owner_writes_the_log_and_its_group_reads_it(audit: Audit, tmp_path: Path) -> None:
    audit.note_site("reload", "site.toml")
    assert (tmp_path / "site.jsonl").stat().st_mode & 0o027 == 0


def test_many_names_do_not_grow_the_memory(audit: Audit) -> None:
    for number in range(5 * PRINCIPALS_MAX):
        audit.refuse("join", principal=f"name-{number}")
    assert len(audit._budgets) <= PRINCIPALS_MAX * len(SERIES)


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    audit = Audit(tmp_path / "file" / "audit")
    audit.note("join", principal="alice")
    assert audit.statistics().failed == 1
    (problem,) = audit_problems(audit)
    assert "the audit log cannot be written" in problem.text
    assert "1 line missing" in problem.text
    (tmp_path / "file").unlink()
    audit.note("join", principal="alice")
    assert list(audit_problems(audit)) == []
