"""[[quota]]: for each key, the value of the name's own table, or that of everybody, or the default."""

from dataclasses import fields
from pathlib import Path

import pytest
from siteconfig import SITE, Write, reported

from headrace.link.quotas import Quotas, QuotaTable
from headrace.site import load_config
from headrace.site.config import Quota
from headrace.site.terms import quotas_of
from headrace.toml.layout import keys_of

USERS = "[users]\ndictionary_file = 'u'\n"


@pytest.fixture(autouse=True)
def users(tmp_path: Path) -> None:
    (tmp_path / "u").write_text("a:1\nb:2\n")


def test_a_file_has_a_key_for_each_quota() -> None:
    assert [key.name for key in keys_of(Quota)] == ["who", *(each.name for each in fields(Quotas))]


def test_a_file_without_quotas_has_the_defaults(write: Write) -> None:
    quotas = quotas_of(load_config(write(SITE)))
    assert quotas.of(None) == quotas.of("a") == Quotas()


def test_a_name_has_its_own_quotas_and_for_the_rest_those_of_everybody(write: Write) -> None:
    text = f"{SITE}{USERS}[[quota]]\nwho = ['a']\nstreams = 7\n[[quota]]\nstations = 3\nbytes_per_s = '5MB'\n"
    quotas = quotas_of(load_config(write(text)))
    everybody = Quotas(stations=3, bytes_per_s=5e6)
    assert quotas.of(None) == quotas.of("b") == everybody
    assert quotas.of("a") == Quotas(stations=3, bytes_per_s=5e6, streams=7)


def test_quotas_that_change_are_in_force_at_once() -> None:
    held = QuotaTable(Quotas(streams=1))
    held.change(QuotaTable(Quotas(streams=2), {"a": Quotas(streams=3)}))
    assert (held.of("b").streams, held.of("a").streams) == (2, 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[quota]]\n", "3: [[quota]] 1: it limits nothing"),
        ("[[quota]]\nstreams = 0\n", "4: [[quota]] 1 streams: 0 is out of range"),
        ("[[quota]]\ncalls_per_s = -1\n", "4: [[quota]] 1 calls_per_s: -1 is out of range"),
        ("[[quota]]\ncalls_per_s = inf\n", "4: [[quota]] 1 calls_per_s: inf is out of range"),
        ("[[quota]]\nbytes_per_s = 5\n", "4: [[quota]] 1 bytes_per_s: 5 has no unit"),
        ("[[quota]]\nwaiting_bytes = '1B'\n", "4: [[quota]] 1 waiting_bytes: '1B' is out of range"),
        ("[[quota]]\nwho = ['a']\nstreams = 1\n", "4: [[quota]] 1 who: no client can authenticate by that name"),
        (f"{USERS}[[quota]]\nwho = ['a']\nstreams = 1\n[[quota]]\nwho = ['b', 'a']\nstreams = 2\n",
         "10: [[quota]] 2 streams: [[quota]] 1 has streams for a already"),
    ],
)  # fmt: skip
def test_what_quotas_may_not_say(write: Write, text: str, said: str) -> None:
    (found,) = reported(write(SITE + text))
    assert found.startswith(said)
