"""headrace queue: create, info, check, repair, resize, delete."""

from pathlib import Path

import pytest

from headrace import Queue
from support.commandline import Run, fill, objects, spoil


def test_a_queue_is_created_with_the_given_terms(run: Run, tmp_path: Path) -> None:
    words = ["--size", "8MiB", "--age", "1h", "--durability", "disk", "--dedup", "payload", "--hash", "xxh3",
             "--origin", "boulder"]  # fmt: skip
    result = run("queue", "create", "new", *words, "--json")
    (told,) = objects(result.stdout)
    with Queue.open(tmp_path / "new") as queue:
        config = queue.config
    assert (config.size, config.age_s, config.durability, config.dedup, config.hash, config.origin) == (
        8 << 20, 3600.0, "disk", "payload", "xxh3", "boulder",
    )  # fmt: skip
    assert told["terms"]["uuid"] == config.uuid
    assert told["path"] == str(tmp_path / "new")


def test_creating_a_queue_shows_its_limits(run: Run) -> None:
    assert "8.0 MiB, age 2.0 h" in run("queue", "create", "new", "--size", "8MiB", "--age", "2h").stdout


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--size", "2 apples"], "--size '2 apples' is not a size"),
        (["--size", "1kB"], "size 1000 (1000 B) is out of range"),
        (["--age", "soon"], "--age 'soon' is not a length of time"),
        (["--origin", "a b"], "origin 'a b' is not a site id"),
        (["--durability", "eternal"], "Invalid value for '--durability'"),
        (["--dedup", "crc"], "Invalid value for '--dedup'"),
        (["--hash", "crc"], "Invalid value for '--hash'"),
    ],
)
def test_invalid_terms_are_refused_and_nothing_is_created(
    run: Run, tmp_path: Path, words: list[str], problem: str
) -> None:
    result = run("queue", "create", "new", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert problem in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_queue_is_not_created_over_another(run: Run, path: Path) -> None:
    result = run("queue", "create", path)
    assert result.exit_code == 3
    assert "is a queue already" in result.stderr


def test_info_shows_terms_holdings_feeds_and_cursors(run: Run, path: Path) -> None:
    fill(path, 3)
    with Queue.open(path) as queue:
        queue.cursor("archive", 2)
    shown = run("queue", "info", path).stdout
    for line in (
        "size             4.0 MiB",
        "sequences           1 to 3",
        "wx/text         3",
        "archive         2       2",
    ):
        assert line in shown


def test_info_is_one_object_for_programs(run: Run, path: Path) -> None:
    fill(path, 3)
    (told,) = objects(run("queue", "info", path, "--json").stdout)
    assert told["terms"]["origin"] == "here"
    assert told["statistics"]["held_products"] == 3
    assert told["statistics"]["feeds"] == [{"feed": "wx/text", "products": 3, "bytes": 27, "last": 3}]
    assert told["processes"] == []


def test_info_names_the_processes_that_are_attached(run: Run, path: Path, start) -> None:
    fill(path, 1)
    watcher = start("watch", path, "--from", "oldest")
    watcher.stdout.readline()
    (told,) = objects(run("queue", "info", path, "--json").stdout)
    assert [process["pid"] for process in told["processes"]] == [watcher.pid]
    assert "watch" in told["processes"][0]["command"]


def test_info_shows_the_busiest_feeds_unless_all_feeds_is_given(run: Run, path: Path) -> None:
    with Queue.open(path) as queue:
        for n in range(25):
            queue.put(b"%d" % n, feed=f"feed/{n}")
    assert "and 5 feeds more" in run("queue", "info", path).stdout
    assert "feed/24" in run("queue", "info", path, "--all-feeds").stdout


def test_an_intact_queue_passes_the_check(run: Run, path: Path) -> None:
    fill(path, 3)
    result = run("queue", "check", path)
    assert (result.exit_code, result.stdout) == (0, f"{path} is intact\n")
    assert objects(run("queue", "check", path, "--json").stdout) == [{"path": str(path), "ok": True, "findings": []}]


def test_a_damaged_product_is_found_and_repaired(run: Run, path: Path) -> None:
    fill(path, 3)
    spoil(path, b"product 2")
    result = run("queue", "check", path)
    assert result.exit_code == 1
    assert "(product 2)" in result.stdout
    (told,) = objects(run("queue", "check", path, "--json").stdout)
    assert not told["ok"]
    assert [finding["sequence"] for finding in told["findings"]] == [2]
    assert run("queue", "repair", path).stdout
    assert run("queue", "check", path).exit_code == 0


def test_a_queue_that_fails_to_open_is_a_finding(run: Run, path: Path) -> None:
    (path / "spoilt").touch()
    (path / "names").unlink()
    result = run("queue", "check", path)
    assert result.exit_code == 1
    assert "names is missing" in result.stdout


def test_an_intact_queue_needs_no_repair(run: Run, path: Path) -> None:
    assert run("queue", "repair", path).stdout == f"{path}: nothing to repair\n"
    assert objects(run("queue", "repair", path, "--json").stdout) == [{"path": str(path), "done": []}]


def test_a_queue_in_use_is_not_repaired(run: Run, path: Path) -> None:
    with Queue.open(path):
        result = run("queue", "repair", path)
    assert result.exit_code == 3
    assert "is in use" in result.stderr


def test_resize_changes_the_limits(run: Run, path: Path) -> None:
    assert run("queue", "resize", path, "--size", "2MiB", "--age", "1h").exit_code == 0
    (told,) = objects(run("queue", "resize", path, "--age", "0", "--json").stdout)
    assert (told["terms"]["size"], told["terms"]["age_s"]) == (2 << 20, None)


def test_resize_without_an_option_is_refused(run: Run, path: Path) -> None:
    result = run("queue", "resize", path)
    assert result.exit_code == 2
    assert "give --size, --age or both" in result.stderr


def test_products_are_deleted_by_selection(run: Run, path: Path) -> None:
    fill(path, 3)
    fill_other = run("put", path, "-", "--feed", "wx/radar", stdin=b"echo")
    assert fill_other.exit_code == 0
    result = run("queue", "delete", path, "--select", "wx/text", "--ident", "[12]$")
    assert result.stdout == f"deleted 2 products of {path}\n"
    with Queue.open(path) as queue:
        assert [product.ident for product in queue.read_batch()] == ["ident 3", ""]


@pytest.mark.parametrize("answer", ["n\n", "", "\n"])
def test_a_queue_is_not_deleted_without_a_yes(run: Run, path: Path, answer: str) -> None:
    result = run("queue", "delete", path, stdin=answer)
    assert result.exit_code == 1
    assert "nothing was deleted" in result.stderr
    assert path.exists()


def test_a_queue_is_deleted_after_a_yes(run: Run, path: Path) -> None:
    assert run("queue", "delete", path, stdin="y\n").exit_code == 0
    assert not path.exists()


def test_the_option_yes_skips_the_confirmation(run: Run, path: Path) -> None:
    assert objects(run("queue", "delete", path, "--yes", "--json").stdout) == [{"path": str(path), "deleted": True}]
    assert not path.exists()


def test_a_directory_that_is_not_a_queue_is_never_deleted(run: Run, tmp_path: Path) -> None:
    precious = tmp_path / "home" / "precious"
    precious.parent.mkdir()
    precious.touch()
    result = run("queue", "delete", precious.parent, "--yes")
    assert result.exit_code == 3
    assert "it is not a queue" in result.stderr
    assert precious.exists()


def test_a_queue_in_use_is_not_deleted(run: Run, path: Path) -> None:
    with Queue.open(path):
        assert run("queue", "delete", path, "--yes").exit_code == 3
    assert path.exists()
