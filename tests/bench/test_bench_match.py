"""The benchmark of the subscription table runs small, so that it does not rot. Nothing here judges speed."""

from running import report_of, run_bench


def test_every_figure_of_the_match_benchmark_is_taken() -> None:
    report = report_of("match", "--subscriptions", "60,30")
    figures = ["30-p50", "30-mean", "60-p50", "60-mean", "growth", "naive"]
    kinds = ["integer", "string", "tags", "regex", "sql", "feed"]
    assert [figure["name"] for figure in report["figures"]] == [f"{kind}-{name}" for kind in kinds for name in figures]
    assert all(figure["value"] > 0 for figure in report["figures"])
    assert sum("NaradaBrokering" in figure["beside"] for figure in report["figures"]) == 8
    assert report["command"] == "headrace bench match --subscriptions 30,60"


def test_each_product_of_the_benchmark_matches_the_subscription_of_its_number() -> None:
    from headrace.bench.match import KINDS
    from headrace.selection.table.table import SubscriptionTable

    for kind in KINDS:
        table = SubscriptionTable()
        for number in range(200):
            table.add(number, kind.selection(number))
        for number in range(0, 200, 7):
            wanted = kind.selection(number).wants(kind.product(number))
            assert table.matches(kind.product(number)) == ([number] if wanted else []), kind.name
            assert wanted or kind.name == "sql"


def test_an_invalid_number_of_subscriptions_is_refused_with_an_example() -> None:
    done = run_bench("match", "--subscriptions", "many")
    assert done.returncode == 2
    assert "20000,100000" in done.stderr
