"""headrace cat: payloads to standard output and into files."""

import base64
from pathlib import Path

import pytest

from headrace import Queue
from headrace.cli.cat import file_name
from support.commandline import Run, fill, objects, spoil


def test_payloads_are_written_unchanged(run: Run, path: Path) -> None:
    with Queue.open(path) as queue:
        queue.put(bytes(range(256)), feed="x")
        queue.put(b"\n\xff", feed="x")
    assert run("cat", path).stdout_bytes == bytes(range(256)) + b"\n\xff"


def test_a_separator_stands_between_payloads_only(run: Run, path: Path) -> None:
    fill(path, 3)
    shown = run("cat", path, "--separator", r"|\n\\").stdout_bytes
    assert shown == b"product 1|\n\\product 2|\n\\product 3"


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (["--from", "2"], [2, 3, 4]),
        (["--to", "3"], [1, 2]),
        (["--from", "2", "--to", "4"], [2, 3]),
        (["--from", "3", "--to", "2"], []),
        (["--to", "100"], [1, 2, 3, 4]),
        (["--count", "1"], [1]),
        (["--from", "next"], []),
        (["--ident", "[24]"], [2, 4]),
        (["--select", "other"], []),
        (["--from", "1h", "--to", "2020-01-01"], []),
    ],
)
def test_only_selected_products_are_written(run: Run, path: Path, words: list[str], numbers: list[int]) -> None:
    fill(path, 4)
    result = run("cat", path, *words, "--separator", " ")
    assert result.exit_code == 0
    assert result.stdout == " ".join(f"product {n}" for n in numbers)


def test_feed_types_of_ldm_in_a_selection_are_warned_of(run: Run, path: Path) -> None:
    fill(path, 1)
    warning = "DDPLUS|IDS is a feed type of LDM; here it selects only feeds of that very name, not wx/text/**"
    assert run("cat", path, "--select", "DDPLUS|IDS").stderr == f"headrace: warning: {warning}\n"
    assert objects(run("cat", path, "--select", "DDPLUS|IDS", "--json").stderr) == [{"warning": warning}]
    assert f"warning: {warning}" in run("station", "create", path, "s", "--select", "DDPLUS|IDS").stderr
    assert not run("cat", path, "--select", "wx/text/**").stderr


def test_programs_get_the_payload_in_base64(run: Run, path: Path) -> None:
    fill(path, 1)
    (told,) = objects(run("cat", path, "--json").stdout)
    assert base64.b64decode(told["payload"]) == b"product 1"
    assert told["ident"] == "ident 1"


def test_records_are_written_whole(run: Run, path: Path) -> None:
    fill(path, 1)
    with Queue.open(path) as queue:
        record = queue.read_batch().record(0)
    assert run("cat", path, "--record").stdout_bytes == record


def test_each_payload_goes_into_a_file_of_its_own(run: Run, path: Path, tmp_path: Path) -> None:
    fill(path, 2)
    result = run("cat", path, "--output", "out/deep")
    assert result.stdout == "wrote 2 files (18 B) to out/deep\n"
    files = sorted((tmp_path / "out/deep").iterdir())
    assert [file.name for file in files] == ["000000000001-ident_1", "000000000002-ident_2"]
    assert [file.read_bytes() for file in files] == [b"product 1", b"product 2"]


def test_the_json_names_the_files(run: Run, path: Path, tmp_path: Path) -> None:
    fill(path, 2)
    told = objects(run("cat", path, "--output", tmp_path / "out", "--json").stdout)
    assert [Path(product["file"]).read_bytes() for product in told] == [b"product 1", b"product 2"]


@pytest.mark.parametrize(
    "ident", ["../../evil", "/etc/passwd", "..", ".", "", "a/../../b", "x" * 1024, "\0\n\x1b", "é" * 500]
)
def test_no_ident_escapes_from_the_directory(run: Run, path: Path, tmp_path: Path, ident: str) -> None:
    with Queue.open(path) as queue:
        queue.put(b"content", feed="x", ident=ident)
    before = {file for file in tmp_path.rglob("*") if "q" not in file.relative_to(tmp_path).parts}
    assert run("cat", path, "--output", "out").exit_code == 0
    after = {file for file in tmp_path.rglob("*") if "q" not in file.relative_to(tmp_path).parts}
    folder, file = sorted(after - before)
    assert (folder, file.parent) == (tmp_path / "out", tmp_path / "out")
    assert file.read_bytes() == b"content"


def test_file_names_keep_all_safe_characters() -> None:
    assert file_name(7, "SAUS70 KWBC 060000 /pMETAR") == "000000000007-SAUS70_KWBC_060000_pMETAR"
    assert file_name(7, "data.grib2") == "000000000007-data.grib2"
    assert file_name(7, "..") == "000000000007"
    assert len(file_name(7, "x" * 1024)) < 200


def test_a_link_in_the_directory_is_not_followed(run: Run, path: Path, tmp_path: Path) -> None:
    fill(path, 1)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "000000000001-ident_1").symlink_to(tmp_path / "elsewhere")
    assert run("cat", path, "--output", "out").exit_code == 3
    assert not (tmp_path / "elsewhere").exists()


def test_a_directory_that_cannot_be_created_is_an_error(run: Run, path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("cat", path, "--output", "file")
    assert result.exit_code == 3
    assert result.stderr == "headrace: file: File exists\n"


def test_a_damaged_product_is_skipped_and_reported(run: Run, path: Path) -> None:
    fill(path, 3)
    spoil(path, b"product 2")
    result = run("cat", path, "--separator", " ")
    assert (result.exit_code, result.stdout) == (1, "product 1 product 3")
    assert "product 2" in result.stderr
