"""Warnings of a configuration: valid by itself, and dangerous together with what other sites may have in theirs."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from siteconfig import SITE, Write

from headrace.cli.config import config
from headrace.site import check_config
from headrace.site.loading import check_warnings

USERS = "[users]\ndictionary_file = 'u'\n"
FAILOVER = "[[request]]\nselect = 'wx/**'\nsites = ['b', 'c']\nredundancy = 'failover'\n"


@pytest.fixture(autouse=True)
def users(tmp_path: Path) -> None:
    (tmp_path / "u").write_text("a:1\nb:1\nc:1\nd:1\n")
    (tmp_path / "u").chmod(0o600)


def allow(who: str, receive: str) -> str:
    return f"[[allow]]\nwho = ['{who}']\nreceive = ['{receive}']\npublish = ['**']\n"


def test_a_site_of_the_list_that_may_take_the_same_from_here_is_a_warning(write: Write) -> None:
    path = write(SITE + USERS + FAILOVER + allow("b", "wx/radar/**"))
    assert check_config(path) == []
    (warning,) = check_warnings(path)
    assert str(warning).removeprefix(f"{path}:") == (
        "7: [[request]] 1 sites: b may serve this request, and [[allow]] 1 lets it take the same from here"
    )
    assert "two sites that prefer each other get nothing new" in warning.hint
    shown = CliRunner().invoke(config, ["check", str(path)])
    assert shown.exit_code == 0
    assert "warning: " in shown.output
    assert f"{path} is valid, with 1 warning\n" in shown.output


@pytest.mark.parametrize(
    "text",
    [
        FAILOVER + allow("b", "tel/**"),
        FAILOVER + allow("d", "wx/**"),
        FAILOVER,
        FAILOVER.replace("failover", "all") + allow("b", "wx/**"),
    ],
)
def test_other_configurations_have_no_warning(write: Write, text: str) -> None:
    path = write(SITE + USERS + text)
    assert check_config(path) == []
    assert check_warnings(path) == []


def test_a_file_with_problems_has_no_warnings(write: Write) -> None:
    assert check_warnings(write(SITE + "nonsense = 1\n" + USERS + FAILOVER + allow("b", "wx/**"))) == []


def test_rules_of_this_site_that_let_nobody_publish_what_it_requests_are_a_warning(write: Write) -> None:
    request = "[[request]]\nselect = 'wx/**'\nsites = ['a']\n"
    path = write(SITE + USERS + request + "[[allow]]\nwho = ['c']\nreceive = ['wx/**']\n")
    (warning,) = check_warnings(path)
    assert "no [[allow]] rule of this site lets another one publish wx/**: the request gets nothing" in str(warning)
    assert warning.hint.startswith('add publish = ["wx/**"] to a rule that names the site which serves the request')


@pytest.mark.parametrize(
    ("select", "meant"), [("IDS|DDPLUS", "wx/text/**"), ("ANY", "**"), ("NEXRAD2", "wx/radar/nexrad2/**")]
)
def test_a_feed_type_of_ldm_is_a_warning_that_says_what_to_write(write: Write, select: str, meant: str) -> None:
    path = write(SITE + f"[[request]]\nselect = '{select}'\n")
    assert check_config(path) == []
    (warning,) = check_warnings(path)
    assert "is a feed type of LDM" in str(warning)
    assert warning.hint == f'write select = "{meant}"'


@pytest.mark.parametrize("select", ["ids", "wx/IDS", "IDS/**", "IDS|wx/**", "604", "**"])
def test_other_feeds_are_no_feed_types(write: Write, select: str) -> None:
    assert check_warnings(write(SITE + f"[[request]]\nselect = '{select}'\n")) == []
