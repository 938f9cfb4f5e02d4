"""Keys that are valid alone and contradict each other."""

from pathlib import Path

import pytest
from siteconfig import SITE, Write, only, reported

from headrace.link.certificates import make_authority, make_certificate
from headrace.site import check_config

TLS = "[tls]\nauthority = 'authority.crt'\ncertificate = 'here.crt'\nkey = 'here.key'\n"
USERS = "[users]\ndictionary_file = 'u'\n"
ALLOW = "[[allow]]\nwho = '*'\nreceive = ['**']\n"


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    make_authority(tmp_path)
    make_certificate(tmp_path, "here")
    (tmp_path / "u").write_text("a:1\n")
    (tmp_path / "p").write_text("1\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mode = 'client'\nlisten = ['tcp/127.0.0.1:1']\nconnect = ['tcp/a:1']\n",
         "4: [site] listen: a client does not listen"),
        ("mode = 'client'\n", "1: [site] connect: there is no endpoint"),
        ("listen = []\n", "1: [site] connect: there is no endpoint"),
        ("listen = ['tcp/127.0.0.1:7447']\nconnect = ['tcp/a:1', 'tcp/127.0.0.1:7447']\n", "4: [site] connect: 'tcp/127.0.0.1:7447' is this site itself"),
        ("listen = ['tls/127.0.0.1:1']\n", "3: [site] listen: 'tls/127.0.0.1:1' needs a certificate"),
        ("listen = ['quic/127.0.0.1:1']\n[tls]\nauthority = 'authority.crt'\n",
         "3: [site] listen: 'quic/127.0.0.1:1' needs a certificate"),
        ("connect = ['tls/a:1']\n[tls]\nauthority = 'authority.crt'\ncertificate = 'here.crt'\n",
         "6: [tls] certificate: it has no effect without key"),
        ("connect = ['tls/a:1']\n[tls]\nauthority = 'authority.crt'\nkey = 'here.key'\n",
         "6: [tls] key: it has no effect without certificate"),
        (TLS, "3: [tls]: no endpoint uses it"),
        ("[clock]\nsource = 'ntp'\n", "4: [clock] source: \"ntp\" needs servers"),
        ("[clock]\nsource = 'system'\nservers = ['a']\n", "5: [clock] servers: \"system\" uses no servers"),
        ("[clock]\nservers = ['a', 'b', 'A:123']\n", "4: [clock] servers: 'A:123' is listed twice"),
        ("[users]\n", "3: [users]: it is empty"),
        (f"{USERS}name = 'a'\n", "5: [users] name: it has no effect without password_file"),
        (f"{USERS}password_file = 'p'\n", "5: [users] password_file: it has no effect without name"),
        ("[users]\nname = 'a'\npassword_file = 'p'\n", "4: [users] name: a site with a user name requires one"),
        (f"mode = 'client'\nconnect = ['tcp/a:1']\n{USERS}", "6: [users] dictionary_file: no client can connect"),
        ("[[allow]]\nwho = '*'\n", "3: [[allow]] 1: it has no feeds"),
        (f"{USERS}[[allow]]\nwho = ['*', 'a']\nreceive = ['**']\n", "6: [[allow]] 1 who: \"*\" includes the other names"),
        (f"{USERS}[[allow]]\nwho = []\nreceive = ['**']\n", "6: [[allow]] 1 who: the list is empty"),
        ("[[allow]]\nwho = ['a']\nreceive = ['**']\n", "4: [[allow]] 1 who: no client can authenticate by that name"),
        ("[[request]]\nselect = 'a'\nsites = ['b']\nredundancy = 'failover'\n",
         "6: [[request]] 1 redundancy: \"failover\" needs a second site"),
        ("name = 'me'\n[[request]]\nselect = 'a'\nsites = ['b', 'me']\n", "6: [[request]] 1 sites: 'me' is this site"),
        ("[[request]]\nselect = 'a/**/**'\n[[request]]\nselect = 'a/**'\nfrom = '1h'\n",
         "6: [[request]] 2 select: 'a/**' is requested by [[request]] 1 already"),
        ("[[request]]\nselect = 'a'\nname = 'x'\n[[request]]\nselect = 'b'\nname = 'x'\n",
         "8: [[request]] 2 name: 'x' is the name of [[request]] 1 already"),
        ("[[request]]\nselect = 'a'\nname = 'request 2'\n[[request]]\nselect = 'b'\n",
         "6: [[request]] 2 name: 'request 2' is the name of [[request]] 1 already"),
    ],
)  # fmt: skip
def test_a_contradiction_is_reported_with_a_remedy(write: Write, text: str, said: str) -> None:
    path = write(SITE + text)
    assert len(reported(path)) == 1, reported(path)
    assert reported(path)[0].startswith(said)
    assert only(path).hint


def test_requests_for_the_same_products_from_different_sites_are_valid(write: Write) -> None:
    requests = "".join(f"[[request]]\nselect = 'a'\nsites = ['{site}']\n" for site in "bc")
    assert reported(write(SITE + requests + "[[request]]\nselect = 'a'\n")) == []


def test_rules_may_name_certificates_and_users(write: Write) -> None:
    rule = "[[allow]]\nwho = ['a']\nreceive = ['**']\n"
    assert reported(write(SITE + USERS + rule)) == []
    assert reported(write(f"{SITE}listen = ['tls/[::]:1']\n{TLS}{rule}")) == []
    assert len(reported(write(f"{SITE}listen = ['tls/[::]:1']\n{TLS}mutual = false\n{rule}"))) == 1


# --- strangers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "endpoint", ["tcp/127.0.0.1:1", "tcp/127.9.9.9:1", "tcp/[::1]:1", "ws/localhost:1", "unixsock-stream//run/x.sock"]
)
def test_a_site_reachable_only_from_this_machine_needs_no_access_rules(write: Write, endpoint: str) -> None:
    assert reported(write(f"{SITE}listen = ['{endpoint}']\n")) == []


@pytest.mark.parametrize(
    "endpoint", ["tcp/0.0.0.0:1", "tcp/[::]:1", "udp/192.0.2.1:1", "ws/a.example.org:1", "tcp/[2001:db8::1]:1"]
)
def test_a_site_reachable_by_strangers_requires_access_rules(write: Write, endpoint: str) -> None:
    text = f"{SITE}listen = ['tcp/127.0.0.1:1', '{endpoint}']\n"
    found = only(write(text))
    assert found.problem == f"'{endpoint}' is open to strangers"
    assert (found.line, found.key) == (3, "listen")
    assert reported(write(text + ALLOW)) == []
    assert reported(write(text + USERS)) == []


def test_certificates_keep_strangers_out_only_on_endpoints_that_require_them(write: Write) -> None:
    assert reported(write(f"{SITE}listen = ['tls/[::]:1', 'quic/[::]:2']\n{TLS}")) == []
    (said,) = reported(write(f"{SITE}listen = ['tls/[::]:1', 'tcp/[::]:2']\n{TLS}"))
    assert "'tcp/[::]:2' is open to strangers" in said
    (said,) = reported(write(f"{SITE}listen = ['tls/[::]:1']\n{TLS}mutual = false\n"))
    assert "'tls/[::]:1' is open to strangers" in said


def test_certificate_files_that_do_not_match_are_reported(write: Write, tmp_path: Path) -> None:
    make_certificate(tmp_path, "other")
    (tmp_path / "elsewhere").mkdir()
    make_authority(tmp_path / "elsewhere")
    text = f"{SITE}listen = ['tls/[::]:1']\n{TLS}"
    found = only(write(text.replace("here.key", "other.key")))
    assert (found.line, found.table, found.key) == (6, "[tls]", "certificate")
    assert "other.key does not match the certificate" in found.problem
    assert "was not issued by" in only(write(text.replace("authority.crt", "elsewhere/authority.crt"))).problem
    (said,) = reported(write(f"{SITE}connect = ['tls/a:1']\n[tls]\nauthority = 'here.key'\n"))
    assert said.startswith("5: [tls] authority: ")


def test_scouting_without_access_rules_is_reported(write: Write) -> None:
    text = f"{SITE}scouting = 'link'\n"
    assert only(write(text)).key == "scouting"
    assert reported(write(text + ALLOW)) == reported(write(text + USERS)) == reported(write(text + TLS)) == []


# --- beside other problems ------------------------------------------------------------------------


def test_an_invalid_value_causes_no_contradiction(write: Write) -> None:
    assert len(reported(write(f"{SITE}mode = 'clint'\nlisten = []\n"))) == 1
    assert len(reported(write(f"{SITE}listen = ['tcp/x', 'tcp/0.0.0.0:1']\n"))) == 1
    assert (
        len(
            reported(
                write(f"{SITE}listen = ['tls/[::]:1']\n[tls]\nauthority = 'authority.crt'\ncertificate = 'none'\n")
            )
        )
        == 1
    )


def test_contradictions_do_not_hide_each_other(write: Write) -> None:
    path = write(f"{SITE}listen = ['tcp/0.0.0.0:1']\n{TLS}[[request]]\nselect = 'a'\n[[request]]\nselect = 'a'\n")
    assert [found.table for found in check_config(path)] == ["[site]", "[tls]", "[[request]] 2"]
