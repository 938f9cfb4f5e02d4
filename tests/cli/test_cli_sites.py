"""headrace sites: the map of real sites, as tables, JSON and a graph."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace import Queue
from headrace.cli.place import find_place
from headrace.cli.sites import session_terms
from headrace.cli.sites_map import dot_lines, link_lines, quoted, show_map
from headrace.errors import OptionError
from headrace.relay.messages.description import Description, LinkStatus, Problem, RequestStatus, UpstreamStatus
from headrace.site.map import Link, Map, Node
from headrace.site.problems import map_problems
from support.commandline import Run, objects
from support.daemon import Daemon
from support.waiting import until


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Two running sites, and the endpoint of the first. The second has received ten products from it."""
    folder = tmp_path_factory.mktemp("fabric")
    daemons = ExitStack()

    def serve(name: str, more: str) -> str:
        file = folder / f"{name}.toml"
        file.write_text(f'[site]\nqueue = "{name}"\nname = "{name}"\nlisten = ["tcp/127.0.0.1:0"]\n{more}')
        return daemons.enter_context(Daemon(file)).wait_until_ready()

    with daemons:
        first = serve("one", "")
        serve("two", f'connect = ["{first}"]\n[[request]]\nselect = "wx/**"\nfrom = "oldest"\nname = "weather"\n')
        with Queue.open(folder / "one") as one, Queue.open(folder / "two") as two:
            one.put_many([b"%d" % number for number in range(10)], feed="wx/text")
            until(lambda: two.next == 11 and one.wanted_by("wx/x") == ["subscribers to wx/**"])
        yield folder, first


def test_the_map_is_shown_as_tables_and_a_picture(run: Run, fabric: tuple[Path, str]) -> None:
    result = run("sites", fabric[1], "--check")
    assert (result.exit_code, result.stderr) == (0, "")
    shown = result.stdout
    assert re.search(r"sites:\n  site  state  round trip", shown)
    assert re.search(r"\n  (one ── .* ── two|two ── .* ── one)\n", shown)
    assert re.search(r"two +weather +wx/\*\* +one +live +10 +0 +\d+ +(0|\d+ catching up) +0\n", shown)
    assert re.search(r"two +one +wx/text +10 +10 B +0 ", shown)
    assert re.search(r"wanted:\n.*\n  one +wx/\*\*\n", shown)


def test_the_map_is_json_for_programs(run: Run, fabric: tuple[Path, str]) -> None:
    (told,) = objects(run("sites", fabric[1], "--json").stdout)
    assert [(place["name"], place["state"]) for place in told["nodes"]] == [("one", "here"), ("two", "here")]
    (link,) = told["links"]
    assert {link["one"], link["other"]} == {"one", "two"}
    assert link["round_trip_s"] > 0
    (flow,) = told["nodes"][1]["description"]["flows"]
    assert (flow["products"], flow["duplicates"]) == (10, 0)
    assert flow["latency_p50_s"] <= flow["latency_max_s"]


def test_the_map_is_read_through_a_configuration_file(run: Run, fabric: tuple[Path, str], tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(f'[site]\nqueue = "{fabric[0] / "one"}"\nlisten = ["{fabric[1]}"]\n')
    (told,) = objects(run("sites", file, "--json").stdout)
    assert len(told["nodes"]) == 2


def test_the_graph_is_valid_for_graphviz(run: Run, fabric: tuple[Path, str]) -> None:
    result = run("sites", fabric[1], "--dot")
    nodes, edges = parsed(result.stdout)
    assert nodes == {"one", "two"}
    assert ("one", "two", "dashed") in edges
    assert [kind for *_, kind in edges].count("solid") == 1
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=result.stdout, text=True, check=True, capture_output=True, timeout=20)


def test_an_endpoint_without_a_site_is_an_error(run: Run, tmp_path: Path) -> None:
    result = run("sites", "tcp/127.0.0.1:9")
    assert result.exit_code == 3
    assert "cannot connect to tcp/127.0.0.1:9" in result.stderr
    assert run("sites", "tcp/127.0.0.1").exit_code == 2
    assert run("sites", "tcp/127.0.0.1:9", "--dot", "--json").exit_code == 2
    (tmp_path / "site.toml").write_text('[site]\nqueue = "q"\nlisten = ["tcp/127.0.0.1:0"]\n')
    assert "has no endpoint that is known in advance" in run("sites", "site.toml").stderr


def test_a_configuration_gives_its_listen_endpoints_before_its_connect_endpoints(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(
        '[site]\nqueue = "q"\nlisten = ["tcp/0.0.0.0:1", "tcp/[::]:2", "tcp/127.0.0.1:0"]\nconnect = ["tcp/h:3"]\n'
        '[[allow]]\nwho = "*"\nreceive = ["**"]\n'
    )
    terms = session_terms(find_place(str(file)))
    assert (terms.mode, terms.connect) == ("client", ("tcp/127.0.0.1:1", "tcp/[::1]:2", "tcp/h:3"))
    assert session_terms(find_place("tcp/host:7447")).connect == ("tcp/host:7447",)
    with pytest.raises(OptionError):
        session_terms(find_place("tcp://host:7447"))


# --- maps made by hand --------------------------------------------------------------------------------


def description(**given: object) -> Description:
    plain: dict[str, object] = {
        "site": "a", "zid": "1", "started_ns": 0, "oldest": 1, "next": 1, "held_products": 0, "held_bytes": 0,
        "size": 1 << 20, "links": (), "users": 0, "feeds": (), "feeds_in_all": 0, "wanted": (), "requests": (),
        "upstreams": (), "streams": (), "flows": (), "flows_in_all": 0, "answered": 0, "refused": 0, "problems": (),
    }  # fmt: skip
    return Description(**{**plain, **given})  # type: ignore[arg-type]


def upstream(**given: object) -> UpstreamStatus:
    plain: dict[str, object] = {
        "request": "r", "site": "b", "state": "live", "problem": "", "base": 0, "products": 0, "from_others": 0,
        "live_pages": 0, "pulled_pages": 0, "gaps": 0, "repairs": 0, "refused": 0, "latency_s": 0.0, "lost": (),
        "lost_sequences": 0, "left_out": {},
    }  # fmt: skip
    return UpstreamStatus(**{**plain, **given})  # type: ignore[arg-type]


def link(one: str, other: str, seconds: float | None = None) -> Link:
    return Link(one, other, "tcp/x:1", seconds, 0, 0, None)


HOSTILE = 'a"];\\ \x1b[31m\n}'


def hostile() -> Map:
    """Every name that comes from another site has control characters and quotes in it."""
    told = description(
        links=(LinkStatus("2", "router", HOSTILE),), wanted=(HOSTILE,),
        requests=(RequestStatus(HOSTILE, "**", HOSTILE, (), "all", 0, 0, 3, 0, 0, {}),),
        upstreams=(upstream(request=HOSTILE, state="unreachable", problem=HOSTILE, left_out={"evicted": 2}),),
        problems=(Problem("lost", HOSTILE, f"lost 1-2 of {HOSTILE}", f"do {HOSTILE}", 90.0),),
    )  # fmt: skip
    places = (
        Node(HOSTILE, "1", "here", "", 0.001, told),
        Node("b", "", "away", "", None, None),
        Node("c", "3", "silent", HOSTILE, None, None),
        Node("router 4", "4", "router", "", None, None),
    )
    return Map(10**9, places, (Link(HOSTILE, "router 4", HOSTILE, 0.002, 3, 1, 0.25),))


@pytest.mark.parametrize(
    "words",
    [["sites"], ["put", "--feed", "x"], ["watch"], ["lag"], ["top", "--once"], ["queue", "info"], ["hop", "1"]],
    ids=lambda words: words[0],
)
def test_an_address_without_a_protocol_is_refused_with_what_to_write(run: Run, words: list[str]) -> None:
    *before, last = [*words[:1], "127.0.0.1:7447", *words[1:]] if words[0] != "queue" else [*words, "127.0.0.1:7447"]
    told = run(*before, last)
    assert told.exit_code == 2
    assert "127.0.0.1:7447 is neither a file nor an endpoint" in told.stderr
    assert "write tcp/127.0.0.1:7447" in told.stderr


def test_hostile_names_are_quoted_in_a_graph() -> None:
    nodes, edges = parsed("\n".join(dot_lines(hostile())))
    assert len(nodes) == 4
    assert len(edges) == 2
    assert quoted('a"b\\c\n') == '"a\\"b\\\\c\\\\n"'


def test_control_characters_in_names_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    show_map(hostile(), map_problems(hostile()), all_flows=True)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "site b is missing: other sites request products from it" in shown
    assert "2 evicted" in shown
    assert ": lost 1-2 of a" in shown
    assert ", 1.5 min ago\n    try: do a" in shown
    assert "site c does not answer" in shown


def test_a_map_has_the_problems_of_its_sites_and_its_own() -> None:
    def kinds(*nodes: Node) -> list[tuple[str, str]]:
        return [(found.site, found.problem.kind) for found in map_problems(Map(0, nodes, ()))]

    here = Node("a", "1", "here", "", None, description())
    assert kinds(here) == []
    assert kinds() == [("", "silent")]
    assert kinds(here, Node("a", "2", "here", "", None, description())) == [("", "name")]
    assert kinds(here, Node("b", "", "away", "", None, None)) == [("", "away")]
    assert kinds(here, Node("b", "2", "silent", "why", None, None)) == [("", "silent")]
    told = description(problems=(Problem("link", "tcp/h:1", "no link to tcp/h:1: refused", "start it"),))
    assert kinds(Node("b", "1", "here", "", None, told)) == [("b", "link")]


def test_a_queue_is_not_a_site_and_the_error_says_what_is(run: Run, path: Path) -> None:
    run("context", "create", "lab", path)
    for word, named in ((str(path), str(path)), ("@lab", f"{path}, from the context lab")):
        result = run("sites", word)
        assert result.exit_code == 2
        assert f"{named} is a directory, and not the file of a site\n" in result.stderr
        assert "try: headrace sites takes the file of a site, such as site.toml, a site, such as" in result.stderr


def test_links_are_drawn_as_chains_and_rings() -> None:
    assert list(link_lines([link("a", "b", 0.0004), link("b", "c", 0.002)])) == ["a ── 400 µs ── b ── 2.0 ms ── c"]
    (ring,) = link_lines([link("a", "b"), link("b", "c"), link("c", "a")])
    names = ring.split(" ── ")
    assert (names[0], set(names), len(names)) == (names[-1], set("abc"), 4)
    star = list(link_lines([link("a", "b"), link("a", "c"), link("a", "d")]))
    assert sum(line.count("──") for line in star) == 3
    assert list(link_lines([])) == []


def test_links_between_sites_of_one_name_are_drawn_too() -> None:
    assert list(link_lines([link("a", "a", 0.001)])) == ["a ── 1.0 ms ── a"]
    (both,) = link_lines([link("a", "b"), link("a", "b")])
    assert both in ("a ── b ── a", "b ── a ── b")
    assert sum(line.count("──") for line in link_lines([link("a", "a"), link("a", "b"), link("a", "b")])) == 3


def parsed(graph: str) -> tuple[set[str], list[tuple[str, str, str]]]:
    """Nodes and edges of a graph in the part of Graphviz's language that is used; anything else fails."""
    text = r'"(?:[^"\\\n]|\\.)*"'
    name = rf"(?:{text}|[\w-]+)"
    attributes = rf"\[({name}={name}(?:, {name}={name})*)\]"
    lines = graph.splitlines()
    assert (lines[0], lines[-1]) == ("digraph headrace {", "}")
    nodes, edges = set[str](), list[tuple[str, str, str]]()
    for line in lines[1:-1]:
        if re.fullmatch(rf"  (node|edge) {attributes};", line):
            continue
        edge = re.fullmatch(rf"  ({text}) -> ({text}) {attributes};", line)
        node = re.fullmatch(rf"  ({text}) {attributes};", line)
        assert edge or node, line
        if edge:
            edges.append((edge[1][1:-1], edge[2][1:-1], "dashed" if "style=dashed" in edge[3] else "solid"))
        elif node:
            nodes.add(node[1][1:-1])
    return nodes, edges
