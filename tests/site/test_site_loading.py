"""Keys of a configuration: their valid values, and the problem that is reported for others."""

from pathlib import Path

import pytest
from siteconfig import SITE, Write, only, reported

from headrace import Selection
from headrace.errors import ConfigError
from headrace.link.certificates import make_authority, make_certificate
from headrace.log.config import default_origin
from headrace.selection.table_keys import CLAUSES
from headrace.site import check_config, load_config
from headrace.site.config import (
    REPEATED,
    TABLES,
    Allow,
    LogTable,
    QueueTable,
    Request,
    SiteConfig,
    SiteTable,
    TlsTable,
    UsersTable,
)
from headrace.toml.layout import keys_of


def test_the_shortest_file_has_every_default(write: Write, tmp_path: Path) -> None:
    site = SiteTable(queue=tmp_path / "q", name=default_origin())
    assert load_config(write(SITE)) == SiteConfig(site=site, queue=QueueTable(), log=LogTable())
    assert (site.listen, site.connect, site.mode, site.beat_s) == (("local",), (), "router", 0.5)


def test_every_key_is_loaded(write: Write, tmp_path: Path) -> None:
    make_authority(tmp_path)
    make_certificate(tmp_path, "c")
    for name, text in {"p": "secret\n", "u.txt": "a:1\n\nb:2\n"}.items():
        (tmp_path / name).write_text(text)
    path = write("""
        [site]
        name = "here"
        queue = "../x/q"
        listen = ["TLS/[0::0]:7447", "tcp/127.0.0.1:0"]
        connect = ["quic/Upstream.Example.org:7447"]
        mode = "peer"
        scouting = "link"
        gossip = false
        compression = true
        shared_memory = true
        beat = "1.5s"
        [queue]
        size = "64MiB"
        age = "2d"
        durability = "disk"
        dedup = "payload"
        hash = "xxh3"
        [[request]]
        select = "wx/+/#"
        from = "90min"
        sites = ["b", "c"]
        redundancy = "failover"
        name = "radar"
        [[allow]]
        who = "*"
        receive = ["**", "wx/**/**"]
        [[allow]]
        who = ["b", "c"]
        publish = ["wx/**"]
        [tls]
        authority = "authority.crt"
        certificate = "c.crt"
        key = "c.key"
        mutual = false
        [users]
        name = "here"
        password_file = "p"
        dictionary_file = "u.txt"
        [log]
        level = "debug"
        file = "site.log"
        per_second = 7
    """)
    assert load_config(path) == SiteConfig(
        site=SiteTable(
            queue=tmp_path.parent / "x" / "q", name="here", listen=("tls/[::]:7447", "tcp/127.0.0.1:0"),
            connect=("quic/upstream.example.org:7447",), mode="peer", scouting="link", gossip=False, compression=True,
            shared_memory=True,
            beat_s=1.5,
        ),
        queue=QueueTable(size=64 << 20, age_s=172800.0, durability="disk", dedup="payload", hash="xxh3"),
        request=(
            Request(selection=Selection("wx/*/**"), name="radar", start=5400.0, sites=("b", "c"), redundancy="failover"),
        ),
        allow=(Allow(who=("*",), receive=("**", "wx/**")), Allow(who=("b", "c"), publish=("wx/**",))),
        tls=TlsTable(
            authority=tmp_path / "authority.crt", certificate=tmp_path / "c.crt", key=tmp_path / "c.key", mutual=False
        ),
        users=UsersTable(name="here", password_file=tmp_path / "p", dictionary_file=tmp_path / "u.txt"),
        log=LogTable(level="debug", file=tmp_path / "site.log", per_second=7),
    )  # fmt: skip


def test_a_request_takes_the_clauses_of_a_selection_as_keys(write: Write) -> None:
    path = write(
        SITE
        + """
        [[request]]
        select = "wx/** priority 5.."
        ident = "^SA"
        not_ident = "TEST"
        tags = { run = 5, site = ["KFTG", "KDEN"] }
        origin = ["a", "b"]
        slices = "0-7"
        created = "2026-01-01.."
        max_age_s = "1h"
        every = 3
        xpath = "//alert"
        where = "level > 3"
        """
    )
    (request,) = load_config(path).request
    assert str(request.selection) == (
        'wx/** ident ~ "^SA" ident !~ "TEST" tag run=5 tag site="KDEN","KFTG" priority 5.. origin a,b slice 0-7 '
        'created 2026-01-01.. age < 1h every 3 xpath "//alert" where level > 3'
    )


@pytest.mark.parametrize(
    ("written", "start", "begin_at"), [("now", "now", "next"), ("oldest", "oldest", "oldest"), ("1h", 3600.0, "1h")]
)
def test_a_request_has_a_start(write: Write, written: str, start: object, begin_at: str) -> None:
    (request,) = load_config(write(f'{SITE}[[request]]\nselect = "a"\nfrom = "{written}"\n')).request
    assert (request.start, request.begin_at) == (start, begin_at)


def test_requests_without_a_name_are_named_by_their_place(write: Write) -> None:
    path = write(f'{SITE}[[request]]\nselect = "a"\n[[request]]\nselect = "b"\nname = "x"\n[[request]]\nselect = "c"\n')
    assert [request.name for request in load_config(path).request] == ["request 1", "x", "request 3"]


def test_a_client_does_not_listen_by_default(write: Write) -> None:
    assert load_config(write(f'{SITE}mode = "client"\nconnect = ["tcp/a:1"]\n')).site.listen == ()


# --- invalid keys and values ----------------------------------------------------------------------


def test_an_unknown_key_is_reported_with_a_suggestion(write: Write) -> None:
    path = write(f'{SITE}[[request]]\nselect = "a"\n[[request]]\nselect = "b"\nidnet = "^SA"\n')
    found = only(path)
    assert str(found) == f"{path}:7: [[request]] 2: unknown key 'idnet'"
    assert found.hint == "did you mean 'ident'?"


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ('size = "1GiB"\n', "[site]: unknown key 'size'", "it belongs below [queue]"),
        ("zzz = 1\n", "[site]: unknown key 'zzz'", "keys are: queue, name"),
        ('[queue]\norigin = "a"\n', "[queue]: unknown key 'origin'", "[site] name"),
        ('[[request]]\nselect = "a"\nfeed = "a"\n', "[[request]] 1: unknown key 'feed'", "select"),
        ('[[request]]\nselect = "a"\nfunction = "a"\n', "[[request]] 1: unknown key 'function'", "keys are"),
        ("[sites]\n", "unknown table 'sites'", "did you mean [site]?"),
        ("[requests]\n", "unknown table 'requests'", "did you mean [[request]]?"),
        ("[zzz]\n", "unknown table 'zzz'", "[[allow]]"),
    ],
)
def test_an_unknown_key_or_table_has_a_remedy(write: Write, text: str, problem: str, hint: str) -> None:
    found = only(write(SITE + text))
    assert str(found).endswith(f": {problem}")
    assert hint in found.hint


def test_a_key_before_any_table_is_reported_with_its_table(write: Write) -> None:
    found = only(write('connect = ["tcp/a:1"]\n' + SITE))
    assert (found.line, found.problem, found.hint) == (
        1,
        "unknown table 'connect'",
        "it belongs below [site]",
    )


def test_a_password_does_not_appear_in_a_problem(write: Write) -> None:
    problems = check_config(write(f'{SITE}[users]\nname = "a"\npassword = "hush"\n'))
    assert any("password_file" in found.hint for found in problems)
    assert "hush" not in repr(problems)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("scouting = true", 3, "[site] scouting: True is unknown"),
        ("gossip = 1", 3, "[site] gossip: 1 is neither true nor false"),
        ("beat = 500", 3, "[site] beat: 500 has no unit"),
        ("beat = '500'", 3, "[site] beat: '500' has no unit"),
        ("beat = '5 apples'", 3, "[site] beat: '5 apples' is not a length of time"),
        ("beat = '2h'", 3, "[site] beat: '2h' is out of range"),
        ("beat = true", 3, "[site] beat: True is not a duration"),
        ("beat = 2026-01-01", 3, "[site] beat: datetime.date(2026, 1, 1) is not a duration"),
        ("mode = 'broker'", 3, "[site] mode: 'broker' is unknown"),
        ("mode = ['peer']", 3, "[site] mode: ['peer'] is unknown"),
        ("name = 'a b'", 3, "[site] name: 'a b' is not a site id"),
        ("name = 5", 3, "[site] name: 5 is not text"),
        ("connect = 'tcp/a:1'", 3, "[site] connect: 'tcp/a:1' is not a list"),
        ("connect = [\n'tcp/a:1',\n'tcp/a'\n]", 5, "[site] connect: endpoint 'tcp/a' has no port"),
        ("connect = ['tcp/a:1', 'TCP/A:1']", 3, "[site] connect: 'TCP/A:1' is listed twice"),
        ("connect = ['tcp/a:0']", 3, "[site] connect: endpoint 'tcp/a:0' has port 0"),
        ("connect = [5]", 3, "[site] connect: 5 is not text"),
        ("[queue]\nsize = 5", 4, "[queue] size: 5 has no unit"),
        ("[queue]\nsize = '5kB'", 4, "[queue] size: 5000 (4.9 KiB) is out of range"),
        ("[queue]\nage = '99999d'", 4, "[queue] age: 8639913600.0 s is out of range"),
        ("[queue]\ndedup = 'sha1'", 4, "[queue] dedup: 'sha1' is unknown"),
        ("[[request]]\nselect = 5", 4, "[[request]] 1 select: 5 is not text"),
        ("[[request]]\nselect = 'a'\nfrom = 'tomorrow'", 5, "[[request]] 1 from: 'tomorrow' is not a start"),
        ("[[request]]\nselect = 'a'\nfrom = '0s'", 5, "[[request]] 1 from: '0s' is not a start"),
        ("[[request]]\nselect = 'a'\nname = ''", 5, "[[request]] 1 name: '' is not a name"),
        ("[[request]]\nselect = 'a'\ntags = 1.5", 5, "[[request]] 1 tags: 1.5 are invalid"),
        ("[[request]]\nselect = 'a'\npriority = 9", 5, "[[request]] 1 priority: 9 is out of range"),
        ("[[allow]]\nwho = 'site2'\nreceive = ['a']", 4, "[[allow]] 1 who: 'site2' is not a list"),
        ("[[allow]]\nwho = ['a b']\nreceive = ['a']", 4, "[[allow]] 1 who: 'a b' is not a site id"),
        ("[[allow]]\nwho = '*'\nreceive = ['a b']", 5, "[[allow]] 1 receive: feed pattern 'a b' has the illegal"),
        ("[log]\nper_second = 0", 4, "[log] per_second: 0 is out of range"),
        ("[log]\nlevel = 'INFO'", 4, "[log] level: 'INFO' is unknown"),
    ],
)  # fmt: skip
def test_an_invalid_value_is_reported_with_its_key_and_a_remedy(write: Write, text: str, line: int, said: str) -> None:
    found = only(write(f"{SITE}{text}\n"))
    assert f"{found.table} {found.key}: {found.problem}".startswith(said)
    assert found.line == line
    assert found.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: [site]: the table is required"),
        ("[site]\n", "1: [site] queue: the key is required"),
        (f"{SITE}[[request]]\n", "3: [[request]] 1 select: the key is required"),
        (f"{SITE}[[allow]]\nreceive = ['a']\n", "3: [[allow]] 1 who: the key is required"),
        ("[[site]]\nqueue = 'q'\n", "1: [site]: it is a list of tables"),
        (f"log = 5\n{SITE}", "1: [log]: it is not a table"),
        (f"{SITE}[request]\nselect = 'a'\n", "3: [[request]]: it is not a list of tables"),
        (f"request = [1]\n{SITE}", "1: [[request]]: it is not a list of tables"),
    ],
)
def test_missing_tables_and_keys_and_wrong_shapes_are_reported(write: Write, text: str, said: str) -> None:
    assert reported(write(text)) == [said]


def test_an_invalid_selection_is_reported_with_its_column(write: Write) -> None:
    text = f'{SITE}[[request]]\nselect = "wx/** priorty 5"\n'
    found = only(write(text))
    assert (found.line, found.key) == (4, "select")
    assert found.column is not None
    assert text.splitlines()[3][found.column - 1 :].startswith("priorty")
    assert found.excerpt.split("\n")[0].strip() == "wx/** priorty 5"
    assert "did you mean priority?" in found.hint


def test_an_invalid_condition_is_reported_with_its_column(write: Write) -> None:
    text = f"{SITE}[[request]]\nselect = 'a'\nwhere = \"level > 3 AND\"\n"
    found = only(write(text))
    assert (found.line, found.key) == (5, "where")
    assert found.column is not None
    assert found.column > text.splitlines()[4].index("AND")


def test_a_clause_given_twice_is_reported(write: Write) -> None:
    found = only(write(f"{SITE}[[request]]\nselect = 'a ident ~ x'\nident = 'y'\n"))
    assert (found.line, found.key) == (5, "ident")
    assert "select has this clause too" in found.problem


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "table"), [("authority", "tls"), ("certificate", "tls"), ("key", "tls"), ("password_file", "users"),
                       ("dictionary_file", "users")],
)  # fmt: skip
def test_a_missing_or_unreadable_file_is_reported(write: Write, tmp_path: Path, key: str, table: str) -> None:
    for value, problem in {"none": "is not readable: No such file", ".": "is not a file", "": "is not a path"}.items():
        (found,) = [each for each in check_config(write(f"{SITE}[{table}]\n{key} = '{value}'\n")) if each.key == key]
        assert problem in found.problem
        assert found.line == 4
    assert "is not a path" in only(write(f'{SITE}[log]\nfile = "\\u0000"\n')).problem


@pytest.mark.parametrize("text", ["", "a", "a:1\nb\n", "a:1\na:2\n", "# users\n", "a:\n", ":1\n"])
def test_an_invalid_dictionary_file_is_reported(write: Write, tmp_path: Path, text: str) -> None:
    (tmp_path / "u").write_text(text)
    found = only(write(f"{SITE}[users]\ndictionary_file = 'u'\n"))
    assert found.key == "dictionary_file"
    assert str(tmp_path / "u") in found.problem


@pytest.mark.parametrize("content", [b"", b"a\nb\n", b"\xff", b"  \n", b"x" * 5000 + b"\n" + b"y" * 5000])
def test_an_invalid_password_file_is_reported(write: Write, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p").write_bytes(content)
    found = only(write(f"{SITE}listen = []\nconnect = ['tcp/a:1']\n[users]\nname = 'a'\npassword_file = 'p'\n"))
    assert found.key == "password_file"


def test_a_log_file_requires_an_existing_folder(write: Write, tmp_path: Path) -> None:
    assert "does not exist" in only(write(f"{SITE}[log]\nfile = 'none/site.log'\n")).problem
    assert "is a folder" in only(write(f"{SITE}[log]\nfile = '.'\n")).problem


# --- several problems -----------------------------------------------------------------------------


def test_all_problems_are_reported_in_the_order_of_the_file(write: Write) -> None:
    path = write("[log]\nlevel = 'x'\n[site]\nbeat = 1\nqueue = 'q'\nmode = 'x'\nfoo = 1\n[[request]]\n[queu]\n")
    assert [line.split(":")[0] for line in reported(path)] == ["2", "4", "6", "7", "8", "9"]


def test_loading_raises_the_first_problem_and_counts_the_others(write: Write) -> None:
    path = write("[site]\nqueue = 'q'\nmode = 'x'\nbeat = 1\nlisen = []\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert caught.value.problem == f"{path}:3: [site] mode: 'x' is unknown (and 2 more problems)"
    assert "headrace config check" in caught.value.hint
    assert list(caught.value.problems) == check_config(path)
    with pytest.raises(ConfigError, match="does not exist"):
        load_config(path.with_name("none.toml"))


ODD = [
    "5", "-1", "1.5", "nan", "inf", "true", "''", "' '", "'*'", "'\\u0000'", '"\\u0000"', "'a' # x", "[]", "[[]]", "[1, 'a']",
    "{}", "{ a = { b = 1 } }", "[{}]", "1979-05-27", "1979-05-27T07:32:00Z", "07:32:00", "99999999999999999999",
    "'../../../..'", "'\U0001f600'", "'tcp/[::1]:99999'", "'1e9h'", "'/dev/null/x'",
]  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_every_odd_value_is_accepted_or_reported_with_a_remedy(write: Write, table: str) -> None:
    names = [key.name for key in keys_of(TABLES[table])] + list(CLAUSES if table == "request" else ())
    header = f"[[{table}]]" if table in REPEATED else f"[{table}]"
    for name in names:
        for value in ODD:
            path = write(f"{'' if table == 'site' else SITE}{header}\n{name} = {value}\n")
            for found in check_config(path):
                assert found.line is not None
                assert found.hint, found
