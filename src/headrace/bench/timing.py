"""`headrace bench timing`: everything that is claimed of time, order and spacing, in one run.

    clock    offset and error of the clock of a site, with honest and lying time servers (timing_clock.py)
    buffer   how many products per second a release buffer orders, over 50 origins (timing_buffer.py)
    pacer    jitter before and after a pacer, and what each precision costs (timing_pacer.py)

The figures of NaradaBrokering (Pallickara and others, 2005: figures 12 to 20) are repeated; timing_plot.py draws them.
Sleeping precisely is a matter of the whole machine, so the run begins with the machine's load.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from headrace.bench import timing_buffer, timing_clock, timing_pacer
from headrace.bench.report import Announce, Figure

NOT_MEASURED = [*timing_clock.NOT_MEASURED, *timing_buffer.NOT_MEASURED, *timing_pacer.NOT_MEASURED]


def run(folder: Path, scale: float, progress: Announce, plots: Path | None = None) -> Iterator[Figure]:
    """All figures; pictures in the directory `plots`."""
    busy, cores = os.getloadavg()[0], os.cpu_count() or 1
    yield Figure("machine", f"load of the machine before the run, {cores} cores", busy, "processes")
    yield from timing_clock.run(folder, scale, progress, plots / "clock.png" if plots is not None else None)
    yield from timing_buffer.run(folder, scale, progress)
    streams = timing_pacer.measure(folder, scale, progress)
    yield from timing_pacer.figures_of(streams)
    if plots is not None:
        from headrace.bench.timing_plot import save_plots  # matplotlib takes a second to load

        save_plots(plots, streams)
