"""The benchmark of short commands runs small, so that it does not rot. Nothing here judges speed."""

from running import report_of


def test_every_figure_of_the_start_benchmark_is_taken() -> None:
    report = report_of("start", "--scale", "0.01")
    names = [figure["name"] for figure in report["figures"]]
    assert names[0] == "numpy"
    assert {"queue info QUEUE", "lag QUEUE", "queue --help", "import headrace", "from headrace import Queue"} <= set(
        names
    )
    assert all(figure["value"] > 0 for figure in report["figures"])
    assert sum(figure["goal"] == 2 for figure in report["figures"]) == len(names) - 3
