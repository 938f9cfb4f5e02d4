"""The benchmark of channels runs, small, so that it does not rot. Nothing is timed here; accounts must add up."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.bench import channels
from headrace.bench.channel_accounts import Accounts, SupplierAccount, settle_accounts
from headrace.bench.channel_roles import ConsumerLedger, Pushed, Received, SupplierLedger
from headrace.cli.bench import bench
from headrace.queue import Queue

ACCOUNTS = {"monitor": 4, "pipeline": 2}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [case for case in channels.cases(2, 1) if case.name in ("both", "narrow-suppliers", "narrow-consumers")]
    monkeypatch.setattr(channels, "cases", lambda *_: chosen)
    monkeypatch.setattr(channels, "QUICK_SECONDS", 1.0)


@pytest.mark.usefixtures("small")
def test_the_benchmark_of_channels_accounts_for_every_product() -> None:
    done = CliRunner().invoke(bench, ["channels", "--quick", "--json"], catch_exceptions=False)
    report = json.loads(done.stdout)
    assert (done.exit_code, report["faults"]) == (0, [])
    assert report["command"] == "headrace bench channels --quick"
    assert [table["number"] for table in report["memo"]] == [1, 2, 3, 4]
    assert [result["case"]["name"] for result in report["results"]] == ["both", "narrow-suppliers", "narrow-consumers"]
    for result in report["results"]:
        for accounts in result["accounts"]:
            _check(accounts)
            assert set(result["latency"][accounts["channel"]]) == {"p50_ms", "p99_ms", "max_ms"}
            assert result["costs"][accounts["channel"]]["site_pct"] > 0


def _check(accounts: dict[str, Any]) -> None:
    suppliers = accounts["suppliers"]
    assert suppliers["ticks"] == ACCOUNTS[accounts["channel"]]
    fates = ("stored", "refused", "timed_out", "skipped")
    assert suppliers["ticks"] == sum(suppliers[fate] for fate in fates)
    for station in accounts["stations"]:
        ended = station["received"] + station["expired"] + sum(station["dropped"].values()) + station["waiting"]
        assert ended == suppliers["stored"]


def test_accounts_that_do_not_add_up_are_an_exit_code_of_1(monkeypatch: pytest.MonkeyPatch) -> None:
    suppliers = SupplierAccount(ticks=1, stored=2, refused=0, timed_out=0, unconfirmed=0, skipped=0)
    accounts = Accounts("monitor", suppliers, [], ["n0/1 is stored 2 times"])
    result = channels.Result(channels.cases(1, 1)[0], 1, None, {}, {}, [accounts])
    monkeypatch.setattr(channels, "run", lambda *_: iter([result]))
    done = CliRunner().invoke(bench, ["channels", "--json"], catch_exceptions=False)
    assert done.exit_code == 1
    assert json.loads(done.stdout)["faults"] == ["n0/1 is stored 2 times"]


def test_every_product_without_a_fate_is_named(queue: Queue) -> None:
    station = queue.channel("monitor", "m").station("s")
    with queue.channel("monitor").supplier() as supplier:
        for ident in ("n/0", "n/1", "n/2"):
            supplier.push(ident.encode(), ident=ident)
    with station.attach() as consumer:
        consumer.ack(consumer.get(2))
    pushed = [
        Pushed("n/0", "stored", 1),
        Pushed("n/1", "stored", 3),
        Pushed("n/2", "rejected"),
        Pushed("n/3", "unknown"),
    ]
    received = [Received(1, "n/0", 5, -5), Received(1, "n/0", 5, -5)]
    accounts = settle_accounts(
        queue.path, "monitor", [SupplierLedger(pushed, 1, 0.0)], {"s": ConsumerLedger(received, 0.0)}
    )
    assert accounts.suppliers.ticks == 5
    assert (accounts.suppliers.timed_out, accounts.suppliers.unconfirmed) == (1, 0)
    assert accounts.faults == [
        "n/1 was stored at 3, where n/2 is",
        "n/2 was refused, and is stored",
        "the channel counts 0 products rejected, its suppliers 1",
        "station s: 1 product received more than once",
        "station s: 2 products acknowledged, and 1 received",
    ]
