"""`connect("site:NAME")`: where sites are looked for, and what happens if there is none, or more than one."""

import json
import logging
import re
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import zenoh

import headrace
from headrace import Queue
from headrace.errors import FabricError, OptionError, SiteUnreachableError
from headrace.link.credentials import TlsTerms, UserTerms
from headrace.link.keys import site_key
from headrace.link.known import HERE, known_candidates, looks_here
from headrace.link.local import local_endpoint, local_endpoints, prepare_socket
from headrace.link.presence import site_tokens, sites_present
from headrace.link.rights import Rule
from headrace.link.session import SessionTerms, locators, open_session
from headrace.pipeline.source.open_queues import QueueAddress, open_queue
from headrace.queue import AnyQueue
from headrace.site.site import Site
from support.fleet import Fabric, free_port
from support.links import make_certs, tls
from support.serving import Served, Wire
from support.waiting import until

Known = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Known:
    """No endpoint is known; `know` adds some."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("headrace.remote.client.connect.REFUSED_S", 0.3)
    for home in ("remote.client.find", "link.session"):
        monkeypatch.setattr(f"headrace.{home}._NOTICE_S", 0.1)
    return monkeypatch


def know(known: Known, *endpoints: str) -> None:
    known.setenv("HEADRACE_SITES", ",".join(endpoints))


@contextmanager
def declared(endpoint: str, *keys: str) -> Iterator[list[zenoh.LivelinessToken]]:
    """A client that claims to be a site, or several."""
    with open_session(SessionTerms("client", connect=(endpoint,))) as liar:
        tokens = [liar.liveliness().declare_token(key) for key in keys]  # they last as long as this list
        yield tokens


def endpoint_of(fabric: Fabric, name: str) -> str:
    return fabric._endpoints[name]


def reaches(queue: AnyQueue, site: Queue) -> bool:
    """Whether a product that is put into the one is stored in the other."""
    before = site.next
    return queue.put(b"1", feed="x") == before and site.next == before + 1


def is_told(where: str, *texts: str, **options: Any) -> None:
    """A search for a site that does not exist tells this; on a busy machine, perhaps not within the first second."""
    told: list[str] = []

    def fails() -> bool:
        with pytest.raises(SiteUnreachableError) as raised:
            headrace.connect(where, patience=1, **options)
        told.append(str(raised.value))
        return all(re.search(text, told[-1]) for text in texts)

    until(fails, lambda: f"{texts} in {told[-1]}")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """Sites a and b, which are linked; a test that stops one starts it again."""
    fabric = Fabric(tmp_path_factory.mktemp("pair"))
    fabric.add("a")
    fabric.add("b", near=("a",))
    until(lambda: set(sites_present(fabric.sessions["a"]).values()) == {"a", "b"}, "a sees b")
    yield fabric
    fabric.close()


# --- where it is looked for -----------------------------------------------------------------------


def test_a_site_is_found_by_its_name_through_any_known_endpoint(pair: Fabric, known: Known) -> None:
    know(known, f"tcp/127.0.0.1:{free_port()}", endpoint_of(pair, "a"))
    for name in ("a", "b"):
        with headrace.connect(f"site:{name}") as queue:
            assert reaches(queue, pair.queues[name])


def test_the_same_site_on_two_paths_is_one_site_and_its_own_link_is_preferred(pair: Fabric, known: Known) -> None:
    know(known, endpoint_of(pair, "a"), endpoint_of(pair, "b"))
    with headrace.connect("site:b") as queue:
        assert f"{endpoint_of(pair, 'b')}?site=b" in repr(queue)


def test_through_says_where_to_look_and_nothing_else_counts(pair: Fabric, known: Known) -> None:
    know(known, endpoint_of(pair, "a"))
    with headrace.connect("site:b", through=endpoint_of(pair, "a")) as queue:
        assert reaches(queue, pair.queues["b"])
    with pytest.raises(SiteUnreachableError, match=r"looked at tcp/127.0.0.1:\d+ \(through\): connection refused"):
        headrace.connect("site:b", through=[f"tcp/127.0.0.1:{free_port()}"])
    with pytest.raises(OptionError, match="through names another"):
        headrace.connect(endpoint_of(pair, "a"), through=endpoint_of(pair, "b"))


def test_saved_contexts_are_endpoints_that_are_known_with_their_own_credentials(
    tmp_path: Path, shared_memory: Path
) -> None:
    users, password = tmp_path / "users", tmp_path / "password"
    users.write_text("ada:secret\n")
    password.write_text("secret\n")
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    contexts = {"lab": {"where": f"{endpoint}?site=other", "user": "ada", "password_file": str(password)},
                "here": {"where": str(tmp_path)}, "named": {"where": "site:there"}}  # fmt: skip
    (tmp_path / "config/headrace").mkdir(parents=True)
    (tmp_path / "config/headrace/contexts.json").write_text(json.dumps({"version": 1, "contexts": contexts}))
    with open_session(SessionTerms("router", listen=(endpoint,), users_file=users)) as session:
        served = Served(shared_memory, (session, endpoint), origin="there")
        with headrace.connect("site:there") as queue:
            assert reaches(queue, served.queue)
        served.close()


def multicast_port() -> int:
    """A port for multicast on loopback; the test is skipped if this machine has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        try:
            receiver.bind(("224.0.0.224", 0))
            port = int(receiver.getsockname()[1])
            group = socket.inet_aton("224.0.0.224") + socket.inet_aton("127.0.0.1")
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
            receiver.sendto(b"x", ("224.0.0.224", port))
            receiver.settimeout(5)
            receiver.recv(1)
        except OSError as error:
            pytest.skip(f"this machine has no multicast on loopback: {error}")
        return port


def test_sites_that_answer_multicast_are_found_by_name_and_do_not_link_to_each_other(
    known: Known, shared_memory: Path
) -> None:
    known.setenv("HEADRACE_SCOUTING", f"224.0.0.224:{multicast_port()}")
    with ExitStack() as sites:
        served = []
        for name in ("north", "south"):
            terms = SessionTerms("router", listen=("tcp/127.0.0.1:0",), scouting="answer")
            session = sites.enter_context(open_session(terms))
            served.append(Served(shared_memory, (session, locators(session)[0]), origin=name))
            sites.callback(served[-1].close)
        for site in served:
            with headrace.connect(f"site:{site.name}") as queue:
                assert reaches(queue, site.queue)
        is_told("site:west", r"multicast 224.0.0.224:\d+: 2 answered")
        assert [len(list(site._session.info.routers_zid())) for site in served if site._session] == [0, 0]


def test_a_program_with_certificates_finds_a_site_that_has_one_and_no_other(
    known: Known, shared_memory: Path, tmp_path: Path
) -> None:
    known.setenv("HEADRACE_SCOUTING", f"224.0.0.224:{multicast_port()}")
    certs = make_certs(tmp_path / "certs", "north", "ada")
    with ExitStack() as sites:
        for name, protocol in (("north", "tls"), ("south", "tcp")):
            terms = SessionTerms(
                "router", listen=(f"{protocol}/127.0.0.1:0",), scouting="answer", tls=tls(certs, "north")
            )
            session = sites.enter_context(open_session(terms))
            served = Served(shared_memory, (session, locators(session)[0]), origin=name)
            sites.callback(served.close)
        with headrace.connect("site:north", tls=tls(certs, "ada")) as queue:
            assert queue.put(b"1", feed="x") == 1
        is_told("site:south", "2 answered, 1 of them with no endpoint with tls or quic", tls=tls(certs, "ada"))


def test_a_candidate_that_does_not_answer_holds_up_no_other(pair: Fabric, known: Known) -> None:
    wire = Wire(endpoint_of(pair, "a"))
    wire.freeze()
    known.setattr("headrace.remote.client.look.ATTEMPT_S", 3600.0)
    know(known, wire.endpoint, endpoint_of(pair, "a"))
    with headrace.connect("site:b", patience="10min") as queue:
        assert reaches(queue, pair.queues["b"])
    until(lambda: not searching(), "nothing is left that the end of the program would wait for")
    wire.close()


def searching() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("headrace-find-")]


def test_a_site_is_found_among_fifty_behind_one_router(pair: Fabric, known: Known) -> None:
    know(known, endpoint_of(pair, "a"))
    with declared(endpoint_of(pair, "a"), *(site_key(f"s{number:02}", f"{number:x}") for number in range(50))):
        until(lambda: len(sites_present(pair.sessions["b"])) == 52, "all are seen")
        with headrace.connect("site:b") as queue:
            assert reaches(queue, pair.queues["b"])
        is_told("site:c", "reachable sites: a, b, s00, .*, s17 and 32 more")


# --- no site, or more than one --------------------------------------------------------------------


def test_a_site_that_is_not_found_is_an_error_that_says_where_was_looked_and_what_was_seen(
    pair: Fabric, known: Known
) -> None:
    nobody = f"tcp/127.0.0.1:{free_port()}"
    know(known, endpoint_of(pair, "a"), nobody)
    is_told(
        "site:c",
        rf"{endpoint_of(pair, 'a')} \(HEADRACE_SITES\): reachable sites: a, b; ",
        rf"{nobody} \(HEADRACE_SITES\): connection refused; .*\?site=c",
    )


def test_a_search_ends_soon_if_nothing_is_reachable(known: Known) -> None:
    with pytest.raises(OptionError, match=r"no endpoint is known, and multicast is off; set HEADRACE_SITES="):
        headrace.connect("site:a", patience="1h")
    know(known, f"tcp/127.0.0.1:{free_port()}")
    with pytest.raises(SiteUnreachableError, match="connection refused"):
        headrace.connect("site:a")
    know(known, *(f"tcp/127.0.0.1:{port}" for port in range(1, 11)))
    with pytest.raises(
        SiteUnreachableError, match=r"refused; 2 more; in all of them, no site is reachable; multicast is off;"
    ):
        headrace.connect("site:a")


def test_wrong_credentials_are_reported_by_name_as_by_endpoint_and_at_once(known: Known, tmp_path: Path) -> None:
    (tmp_path / "users").write_text("ada:secret\n")
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    know(known, endpoint)
    with open_session(SessionTerms("router", listen=(endpoint,), users_file=tmp_path / "users")):
        for user in (UserTerms("ada", "wrong"), None):
            by_name, by_endpoint = (failure_of(where, user=user) for where in ("site:a", endpoint))
            assert type(by_name) is type(by_endpoint) is FabricError
            assert by_endpoint.problem.removeprefix(f"cannot connect to {endpoint}: ") in by_name.problem
            assert by_name.hint == by_endpoint.hint
        know(known, endpoint, f"tcp/127.0.0.1:{free_port()}")
        is_told("site:a", f"; at {endpoint}, check the password of ada", user=UserTerms("ada", "wrong"))
    with pytest.raises(SiteUnreachableError, match="connection refused"):
        headrace.connect(endpoint, user=UserTerms("ada", "secret"))


def failure_of(where: str, **options: Any) -> FabricError | OptionError:
    with pytest.raises((FabricError, OptionError)) as raised:
        headrace.connect(where, patience="1h", **options)
    return raised.value


def test_invalid_certificates_are_reported_by_name_as_by_endpoint_and_at_once(known: Known, tmp_path: Path) -> None:
    ours, others = make_certs(tmp_path / "ours", "ada"), make_certs(tmp_path / "others", "ada")
    endpoint = f"tls/127.0.0.1:{free_port()}"
    know(known, endpoint)
    foreign = TlsTerms(others / "authority.crt", ours / "ada.crt", ours / "ada.key")
    for terms in (None, foreign, TlsTerms(tmp_path / "missing.crt")):
        by_name, by_endpoint = (failure_of(where, tls=terms) for where in ("site:a", endpoint))
        assert type(by_name) is type(by_endpoint)
        assert by_endpoint.problem in by_name.problem
        assert by_name.hint == by_endpoint.hint


def test_a_place_with_invalid_credentials_holds_up_no_other(pair: Fabric, known: Known) -> None:
    know(known, "tls/127.0.0.1:1", endpoint_of(pair, "a"))
    with headrace.connect("site:b", patience="10min") as queue:
        assert reaches(queue, pair.queues["b"])


def test_a_user_without_an_access_rule_is_told_so(known: Known, tmp_path: Path) -> None:
    (tmp_path / "users").write_text("ada:secret\nbob:secret\n")
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    know(known, endpoint)
    terms = SessionTerms("router", listen=(endpoint,), users_file=tmp_path / "users", rules=(Rule(("ada",), ("x",)),))
    with open_session(terms):
        is_told("site:a", "no site is visible to bob", "bob needs a rule", user=UserTerms("bob", "secret"))


def test_a_name_that_is_nearly_that_of_a_site_is_corrected(pair: Fabric, known: Known) -> None:
    know(known, endpoint_of(pair, "a"))
    with declared(endpoint_of(pair, "a"), site_key("denver", "abc")):
        until(lambda: "abc" in sites_present(pair.sessions["a"]), "the token is seen")
        is_told("site:denwer", r"did you mean site:denver\?")
        is_told(f"{endpoint_of(pair, 'a')}?site=denwer", r"did you mean tcp/.*\?site=denver")


def test_a_name_in_another_case_is_corrected_at_once(pair: Fabric, known: Known) -> None:
    known.setattr("headrace.remote.client.find._NEAREST_S", 0.3)
    know(known, endpoint_of(pair, "a"))
    assert failure_of("site:B").hint == "write site:b: upper and lower case differ"
    assert "?site=b" in failure_of(f"{endpoint_of(pair, 'a')}?site=B").hint


def test_two_sites_of_one_name_are_an_error_that_names_both(known: Known, tmp_path: Path) -> None:
    with ExitStack() as fabrics:
        ends = []
        for folder in ("one", "other"):
            (tmp_path / folder).mkdir()
            fabric = Fabric(tmp_path / folder)
            fabrics.callback(fabric.close)
            fabric.add("b")
            ends.append((endpoint_of(fabric, "b"), str(fabric.sessions["b"].zid())))
        know(known, *(endpoint for endpoint, _ in ends))
        with pytest.raises(FabricError, match="2 sites are called 'b'") as raised:
            headrace.connect("site:b", patience="1h")
        for endpoint, zid in ends:
            assert f"session {zid} through {endpoint}" in str(raised.value)


def test_two_sites_of_one_name_are_noticed_by_an_endpoint_and_by_the_site_itself(pair: Fabric, known: Known) -> None:
    """Calls carry the name of the site, so either of them could reply."""
    known.setattr("headrace.remote.client.find._LEFTOVER_S", 0.5)
    site = pair.sites["a"]
    with declared(endpoint_of(pair, "a"), site_key("a", "abc")):
        until(lambda: "abc" in sites_present(pair.sessions["b"]), "the token is seen")
        with pytest.raises(FabricError, match="2 sites are called 'a'"):
            headrace.connect(endpoint_of(pair, "a"), patience="1h")
        until(lambda: [found.kind for found in site.problems()] == ["name"], "it is a problem of the site")
        assert site.problems()[0].text == "another site is called a, too: session abc"
    until(lambda: site.problems() == (), "it is solved")


def test_a_token_that_outlives_its_site_is_not_a_second_site(
    pair: Fabric, known: Known, caplog: pytest.LogCaptureFixture
) -> None:
    know(known, endpoint_of(pair, "a"))
    with declared(endpoint_of(pair, "b"), site_key("b", "abc")) as (token,), ThreadPoolExecutor(1) as threads:
        until(lambda: "abc" in sites_present(pair.sessions["a"]), "the token is seen")
        with caplog.at_level(logging.WARNING):
            waits = threads.submit(headrace.connect, "site:b", patience=240)
            known.setattr("headrace.remote.client.find._LEFTOVER_S", 240.0)
            until(lambda: "waiting for site b" in caplog.text, "the search waits")
        token.undeclare()  # type: ignore[no-untyped-call]
        with waits.result(240) as queue:
            assert reaches(queue, pair.queues["b"])


def test_a_token_without_a_site_is_an_error_in_the_end(pair: Fabric, known: Known) -> None:
    """A liar, or a site that dies while it is looked for."""
    door = endpoint_of(pair, "a")
    known.setattr("headrace.remote.client.find._LEFTOVER_S", 0.5)
    with declared(door, site_key("ghost", "abc"), site_key("b", "abc")):
        until(lambda: len(site_tokens(pair.sessions["a"])) == 4, "the tokens are seen")
        with pytest.raises(SiteUnreachableError, match=r"site ghost at .* has not replied"):
            headrace.connect(f"{door}?site=ghost", patience=0.5)
        with pytest.raises(FabricError, match=f"2 sites are called 'b': session .* through {door}"):
            headrace.connect(f"{door}?site=b", patience="1h")


def test_a_name_that_a_stranger_claims_for_another_session_does_not_hide_the_real_one(pair: Fabric) -> None:
    door, real = endpoint_of(pair, "a"), str(pair.sessions["b"].zid())
    keys = (
        site_key("z", real),
        site_key("y", "no-id"),
        site_key("x", "A" * 8),
        "headrace/site/w",
        "headrace/site/b/1/2",
    )
    with declared(door, *keys):
        until(lambda: (real, "z") in site_tokens(pair.sessions["a"]), "the claim is seen")
        assert {name for _, name in site_tokens(pair.sessions["a"])} == {"a", "b", "z"}
        assert (real, "b") in site_tokens(pair.sessions["a"])
        with headrace.connect(f"{door}?site=b") as queue:
            assert reaches(queue, pair.queues["b"])


@pytest.mark.parametrize(
    "where", ["site:", "site:a b", "site:a/b", "site:*", "site:-a", "site:a?site=b", f"site:{'a' * 64}"]
)
def test_an_invalid_name_is_refused(where: str) -> None:
    with pytest.raises(OptionError, match="is not the name of a site; use 1 to 63 letters"):
        headrace.connect(where)


def test_invalid_endpoints_in_the_environment_and_in_contexts_are_refused(known: Known, tmp_path: Path) -> None:
    know(known, "tcp/host:1", "host:2")
    with pytest.raises(OptionError, match="HEADRACE_SITES: endpoint 'host:2' has no protocol"):
        headrace.connect("site:a")
    know(known)
    (tmp_path / "config/headrace").mkdir(parents=True)
    (tmp_path / "config/headrace/contexts.json").write_text('{"contexts": {"lab": {"where": "tcp/host"}}}')
    with pytest.raises(OptionError, match="context lab: endpoint 'tcp/host' has no port"):
        headrace.connect("site:a")


def test_without_a_setting_the_sockets_of_sites_on_this_machine_are_known(known: Known, tmp_path: Path) -> None:
    known.delenv("HEADRACE_SITES")
    known.setattr("headrace.link.local._SYSTEM", tmp_path)
    short = Path(tempfile.mkdtemp(prefix="run-"))  # the path of a socket has few bytes
    known.setenv("XDG_RUNTIME_DIR", str(short))
    (short / "queue").mkdir()
    assert (known_candidates(), looks_here()) == ([], True)
    prepare_socket(short / "queue")
    with open_session(SessionTerms("router", listen=(local_endpoint(short / "queue"),))):
        (found,) = known_candidates()
        assert (found.source, found.endpoints) == (HERE, tuple(local_endpoints()))
    assert known_candidates() == []
    shutil.rmtree(short)


# --- sites that are starting ----------------------------------------------------------------------


@pytest.mark.parametrize("by_name", [False, True])
def test_a_site_that_is_restarting_behind_its_router_is_waited_for(
    pair: Fabric, known: Known, caplog: pytest.LogCaptureFixture, by_name: bool
) -> None:
    know(known, endpoint_of(pair, "a"))
    pair.stop("b")
    where = "site:b" if by_name else f"{endpoint_of(pair, 'a')}?site=b"
    with ThreadPoolExecutor(1) as threads, caplog.at_level(logging.WARNING):
        waits = threads.submit(headrace.connect, where, patience=240)
        until(lambda: "waiting for site b" in caplog.text, "connect says for whom it waits")
        assert "reachable sites: a" in caplog.text
        pair.start("b")
        with waits.result(240) as queue:
            assert reaches(queue, pair.queues["b"])


@pytest.mark.parametrize("by_name", [False, True])
def test_a_port_that_refuses_is_waited_for_only_on_request(
    shared_memory: Path, known: Known, caplog: pytest.LogCaptureFixture, by_name: bool
) -> None:
    served = Served(shared_memory)
    served.stop()
    know(known, served.endpoint)
    where = f"site:{served.name}" if by_name else served.endpoint
    with pytest.raises(SiteUnreachableError, match="connection refused"):
        headrace.connect(where)
    with ThreadPoolExecutor(1) as threads, caplog.at_level(logging.WARNING):
        caplog.clear()
        waits = threads.submit(headrace.connect, where, patience=240)
        until(lambda: "waiting for" in caplog.text, "connect says for whom it waits")
        served.start()
        with waits.result(240) as queue:
            assert reaches(queue, served.queue)
    served.close()


def test_a_link_that_is_cut_while_a_site_is_looked_for_is_restored(
    pair: Fabric, known: Known, caplog: pytest.LogCaptureFixture
) -> None:
    wire = Wire(endpoint_of(pair, "a"))
    know(known, wire.endpoint)
    pair.stop("b")
    with ThreadPoolExecutor(1) as threads, caplog.at_level(logging.WARNING):
        waits = threads.submit(headrace.connect, "site:b", patience=240)
        until(lambda: "reachable sites: a" in caplog.text, "the search sees a")
        wire.cut()
        pair.start("b")
        wire.restore()
        with waits.result(240) as queue:
            assert reaches(queue, pair.queues["b"])
    wire.close()


def test_a_connection_goes_on_through_another_known_endpoint_when_its_own_is_gone(known: Known, tmp_path: Path) -> None:
    with ExitStack() as ends:
        fabric = Fabric(tmp_path)
        ends.callback(fabric.close)
        fabric.add("one")
        fabric.add("two")
        fabric.add("far", near=("one", "two"))
        for name in ("one", "two"):
            until(lambda name=name: "far" in sites_present(fabric.sessions[name]).values(), f"{name} sees far")
        know(known, endpoint_of(fabric, "one"), endpoint_of(fabric, "two"))
        with headrace.connect("site:far", patience=240) as queue:
            assert endpoint_of(fabric, "one") in repr(queue)
            assert reaches(queue, fabric.queues["far"])
            fabric.stop("one")
            assert reaches(queue, fabric.queues["far"])


def test_a_site_behind_an_endpoint_is_never_guessed(pair: Fabric, known: Known) -> None:
    known.setattr("headrace.remote.client.find._NEAREST_S", 0.3)
    door = endpoint_of(pair, "a")
    pair.sites.pop("a").close()
    with pytest.raises(FabricError, match=rf"{door} is not a site; reachable sites: b; name the site: {door}\?site=b"):
        headrace.connect(door, patience="1h")
    pair.sites["a"] = Site(pair.sessions["a"], pair.queues["a"], [])


def test_the_source_of_spark_takes_names(pair: Fabric, known: Known) -> None:
    know(known, endpoint_of(pair, "a"))
    known.setattr("headrace.pipeline.source.open_queues._open", {})
    with open_queue(QueueAddress(None, "site:b")) as queue:
        assert reaches(queue, pair.queues["b"])
