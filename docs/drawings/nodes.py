"""Drawings of streams that nodes share: the parts, one session beside the thesis, and a sink."""

from draw import Drawing


def slices() -> Drawing:
    d = Drawing("A stream is cut into slices; nodes own slices by a table; a balancer moves them", 860, 330)
    d.box(20, 90, 130, 70, "producers\nput", "program")
    d.area(190, 20, 260, 290, "queue, or the site in front of it")
    colours = ["station", "station", "fabric", "station", "fabric", "fabric", "station", "fabric"]
    d.cells(210, 70, 27, 40, ["3", "0", "5", "3", "7", "4", "1", "6"], colours)
    d.text(320, 132, "stream: each product has a slice", "quiet")
    d.box(210, 190, 220, 96, "table of the group\nslice → owner, epoch,\nposition", "table")
    d.arrow((150, 110), (210, 110))
    d.box(560, 40, 150, 76, "node one\nslices 0 – 3", "station")
    d.box(560, 150, 150, 76, "node two\nslices 4 – 7", "fabric")
    d.arrow((426, 82), (560, 82), label="reads its slices")
    d.arrow((426, 100), (500, 100), (500, 176), (560, 176))
    d.arrow((560, 205), (430, 205), label="confirms")
    d.box(760, 40, 84, 76, "sink\nresults,\npositions", "table")
    d.arrow((710, 78), (760, 78))
    d.arrow((710, 188), (802, 188), (802, 116))
    d.box(560, 256, 150, 50, "balancer\nlooks, and moves", "program")
    d.arrow((560, 276), (430, 276), label="sessions")
    d.text(722, 276, "never in the way", "quiet", "start")
    d.text(722, 294, "of a product", "quiet", "start")
    return d


def slice_session() -> Drawing:
    d = Drawing("The states of a slice during one session, beside the states of the thesis", 860, 480)
    d.area(20, 20, 280, 440, "the thesis, at node A and node B")
    d.area(320, 20, 520, 440, "here: one word in the table of the group")
    d.box(40, 60, 240, 56, "Available\nat A", "station")
    d.box(40, 190, 240, 72, "In Load Balancing Session\nat A, and added at B;\nboth cache", "program")
    d.box(40, 370, 240, 56, "Available\nat B", "fabric")
    d.arrow((130, 116), (130, 190), label="Update, Add")
    d.arrow((130, 262), (130, 370), label="Remove, Update,\nSend cache, merge")
    d.box(360, 60, 230, 56, "owned\nowner A, epoch 7", "station")
    d.box(360, 190, 230, 72, "in session\nowner A, taker B, epoch 7;\nA ends what is in work", "program")
    d.box(360, 370, 230, 56, "owned\nowner B, epoch 8", "fabric")
    d.arrow((480, 116), (480, 190), label="begin, by the balancer")
    d.arrow((420, 262), (420, 370), label="release, by A: its last position")
    d.box(665, 198, 160, 56, "unowned\nepoch 8, careful", "area")
    d.arrow((590, 80), (745, 80), (745, 198), colour="bad", label="A dies: seize")
    d.arrow((590, 226), (665, 226), colour="bad", label="A dies")
    d.arrow((745, 254), (745, 398), (590, 398), label="give, to any node")
    d.arrow((360, 215), (338, 215), (338, 88), (360, 88), dashed=True)
    d.text(348, 150, "cancel, or\nB dies", "quiet", "start")
    d.text(580, 448, "No cache to send: B reads the log from the position that A has confirmed.", "quiet")
    return d


def sinks() -> Drawing:
    d = Drawing("A sink stores results and positions in one transaction, and refuses an earlier owner", 860, 270)
    d.box(20, 30, 170, 110, "node B\nowner, epoch 8", "fabric")
    d.box(20, 180, 170, 60, "node A\nwas stopped, epoch 7", "station")
    d.area(360, 80, 300, 170, "sink: one transaction for both")
    d.box(380, 120, 120, 76, "results\nrows, files,\nproducts", "table")
    d.box(520, 120, 120, 76, "positions\nby slice,\nwith epoch", "queue")
    d.box(720, 20, 120, 60, "table of\nthe group", "table")
    d.arrow((190, 50), (720, 50), label="3. confirm, after the store")
    d.arrow((190, 100), (360, 100), label="1. claim: epoch 8")
    d.arrow((190, 132), (360, 132), label="2. store")
    d.arrow((190, 215), (360, 215), colour="bad", label="store: fenced")
    return d


DRAWINGS = [slices, slice_session, sinks]
