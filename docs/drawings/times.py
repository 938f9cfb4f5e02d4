"""Drawings of time: products as they are created, as they arrive, and as a buffer and a pacer release them."""

from draw import Drawing

_CREATED = (0, 80, 160, 240, 320, 400)
_ARRIVED = (62, 190, 232, 434, 384, 462)  # of the same products
_ORIGINS = ("station", "fabric", "station", "station", "fabric", "station")


def time() -> Drawing:
    d = Drawing("Products as they are created, as they arrive, in order, and in order with their spacing", 860, 330)
    rows = (
        ("created", "at two origins", _CREATED),
        ("arrived", "in the queue", _ARRIVED),
        ("release buffer", "in order, in batches", (400, 422, 444, 560, 582, 604)),
        ("pacer", "in order, evenly", tuple(200 + each for each in _CREATED)),
    )
    for number, (name, words, moments) in enumerate(rows):
        y = 30 + number * 72
        d.text(20, y + 16, name, "ink bold", "start")
        d.text(20, y + 34, words, "quiet", "start")
        d.arrow((190, y + 30), (840, y + 30))
        for place, (moment, colour) in enumerate(zip(moments, _ORIGINS, strict=True)):
            d.box(195 + moment, y + 2, 20, 26, str(place + 1), colour)
    d.text(840, 318, "time", "quiet", "end")
    d.text(20, 318, "4 took longest: without waiting for it, nobody can hand it out in order", "quiet", "start")
    return d


DRAWINGS = (time,)
