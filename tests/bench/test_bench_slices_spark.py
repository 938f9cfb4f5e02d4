"""The benchmark of slices on Spark runs small, so that it does not rot. Nothing here judges speed."""

from pathlib import Path

from headrace.bench import slices_spark


def test_a_skewed_stream_fills_all_tasks_as_far_as_its_slices_permit(tmp_path: Path) -> None:
    figures = {each.name: each for each in slices_spark.run(tmp_path, 0.01, lambda step: None, with_spark=False)}
    assert set(figures) == {f"slices-{name}{tasks}" for name in ("", "cost-") for tasks in (2, 4, 8)} | {"slices-plan"}
    assert [name for name, each in figures.items() if each.met is False and name != "slices-plan"] == []
