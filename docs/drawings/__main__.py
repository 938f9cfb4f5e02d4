"""python docs/drawings: draws the pictures of the documentation again, into docs/images."""

from pathlib import Path

import guides
import nodes
import payloads
import pipelines
import queues
import sites
import times
from draw import Drawing

IMAGES = Path(__file__).parent.parent / "images"


def drawings() -> dict[str, Drawing]:
    """Every drawing, by the name of its file."""
    found = {}
    for module in (queues, nodes, sites, pipelines, guides, times, payloads):
        for function in module.DRAWINGS:
            found[function.__name__.replace("_", "-")] = function()
    return found


def main() -> None:
    for name, drawing in drawings().items():
        (IMAGES / f"{name}.svg").write_text(drawing.svg())


if __name__ == "__main__":
    main()
