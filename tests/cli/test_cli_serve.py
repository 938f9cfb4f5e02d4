"""headrace wanted, for scripts."""

from pathlib import Path

from headrace import Queue
from headrace.queue.demand import write_wanted
from support.commandline import Run, objects


def test_without_a_site_every_feed_is_wanted(run: Run, path: Path) -> None:
    result = run("wanted", path, "wx/text")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "wx/text is wanted by possible subscribers (no site runs at this queue)\n"


def test_the_exit_code_shows_whether_one_of_the_feeds_is_wanted(run: Run, path: Path) -> None:
    write_wanted(path, {"wx/radar/**": 0})  # as a site in this process does
    assert run("wanted", path, "wx/radar/K").exit_code == 0
    nobody = run("wanted", path, "wx/text", "x")
    assert (nobody.exit_code, nobody.stdout) == (1, "wx/text has no subscribers\nx has no subscribers\n")
    some = run("wanted", path, "wx/text", "wx/radar/K", "--json")
    assert some.exit_code == 0
    assert objects(some.stdout) == [
        {"feed": "wx/text", "wanted": False, "by": []},
        {"feed": "wx/radar/K", "wanted": True, "by": ["subscribers to wx/radar/**"]},
    ]
    with Queue.open(path) as queue:
        queue.station("decode", "wx/text/**")
    assert run("wanted", path, "wx/text").stdout == "wx/text is wanted by station decode\n"


def test_an_invalid_feed_is_refused(run: Run, path: Path) -> None:
    assert run("wanted", path, "wx/**").exit_code == 2
    assert run("wanted", path).exit_code == 2
