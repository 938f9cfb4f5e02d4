"""Drawings of one machine: the queue, who reads from it, and what is promised."""

from draw import Drawing


def overview() -> Drawing:
    d = Drawing(
        "Producers put into a queue; stations and readers get products from it; other sites and Spark follow", 860, 420
    )
    d.area(20, 20, 820, 150, "site one")
    d.area(20, 270, 820, 130, "site two")
    d.box(40, 60, 130, 80, "producers\nput", "program")
    d.box(270, 50, 170, 100, "queue\na bounded log,\nsurvives kill -9")
    d.box(560, 40, 110, 50, "station", "station")
    d.box(700, 40, 120, 50, "consumers\nshare", "program")
    d.box(700, 105, 120, 50, "readers\neach gets all", "program")
    d.arrow((170, 100), (270, 100), label="put")
    d.arrow((440, 65), (560, 65), label="lease, ack")
    d.arrow((670, 65), (700, 65))
    d.arrow((440, 130), (700, 130), label="cursor")
    d.box(255, 195, 200, 56, "fabric\nlive, and from the log", "fabric")
    d.arrow((355, 150), (355, 195))
    d.arrow((355, 251), (355, 300))
    d.text(475, 218, "The link may be cut: what was missed is read again,", "quiet", "start")
    d.text(475, 238, "duplicates are dropped.", "quiet", "start")
    d.box(270, 300, 170, 80, "queue\nthe same products")
    d.box(40, 300, 130, 80, "programs\nreaders, stations", "program")
    d.arrow((270, 340), (170, 340))
    d.box(530, 310, 110, 60, "Spark\nrules", "table")
    d.box(700, 310, 120, 60, "output\ntables, files, …", "table")
    d.arrow((440, 340), (530, 340))
    d.arrow((640, 340), (700, 340))
    return d


def journey() -> Drawing:
    d = Drawing("The journey of a product in six stages", 860, 190)
    stages = [
        ("put\nvalidate, sign", "program"), ("log\nappend, commit", "queue"), ("read\nscan, match", "queue"),
        ("station\nlease, ack", "station"), ("relay\nlive, or pages", "fabric"), ("pipeline\ndecode, act", "table"),
    ]  # fmt: skip
    for number, (text, colour) in enumerate(stages):
        d.box(20 + number * 140, 50, 120, 64, text, colour)
    for number in range(3):
        d.arrow((140 + number * 140, 82), (160 + number * 140, 82))
    d.arrow((220, 114), (220, 140), (640, 140), (640, 114))
    d.arrow((640, 140), (780, 140), (780, 114))
    d.text(80, 36, "steps 1 – 5", "quiet")
    d.text(220, 36, "6 – 9", "quiet")
    d.text(360, 36, "10 – 16", "quiet")
    d.text(500, 36, "17 – 22", "quiet")
    d.text(640, 36, "23 – 32", "quiet")
    d.text(780, 36, "33 – 38", "quiet")
    d.text(430, 166, "the log is the one place that all of them read from", "quiet")
    return d


def replay() -> Drawing:
    d = Drawing("A window of a queue: as it came, at its pace, at twice the speed, and with a pause", 860, 250)
    came = (0, 1, 2, 5, 6, 9, 10)
    rows = [
        ("as it came", "queue", came),
        ("1x", "program", came),
        ("2x", "program", tuple(each / 2 for each in came)),
        ("1x, paused", "program", tuple(each if each < 4 else each + 2 for each in came)),
    ]
    for number, (label, colour, times) in enumerate(rows):
        y = 40 + number * 48
        d.text(120, y + 18, label, "ink", "end")
        d.arrow((140, y + 30), (840, y + 30))
        for time in times:
            d.box(150 + round(time * 54), y, 22, 26, "", colour)
    d.text(150 + round(4.7 * 54), 40 + 3 * 48 + 18, "pause", "bad")
    d.text(840, 236, "time", "quiet", "end")
    return d


def selections() -> Drawing:
    d = Drawing("Clauses are evaluated from cheap to expensive, each for what the last one has left", 860, 190)
    d.box(20, 55, 110, 70, "all\nproducts")
    parts = [
        ("index row\nfeed, priority,\norigin, slice", 160), ("ident\nregular\nexpression", 310),
        ("record\ntags, times,\nwhere", 460), ("payload\nXPath,\nfunction", 610),
    ]  # fmt: skip
    for text, x in parts:
        d.box(x, 45, 120, 90, text, "station")
        d.arrow((x - 30, 90), (x, 90))
    d.arrow((730, 90), (760, 90))
    d.box(760, 55, 80, 70, "wanted", "program")
    d.arrow((160, 155), (730, 155))
    d.text(445, 177, "cheap first: each clause sees only what those before it have left", "quiet")
    d.text(445, 30, 'wx/radar/**   priority 5..   ident ~ "^L2"   where level > 3', "ink")
    return d


def stations() -> Drawing:
    d = Drawing("Stations side by side, in series, and in a group", 860, 330)
    d.box(20, 110, 120, 110, "queue\nthe log")
    d.box(260, 30, 150, 56, "station decode", "station")
    d.box(480, 30, 150, 56, "consumers\nshare the products", "program")
    d.arrow((140, 130), (200, 130), (200, 58), (260, 58))
    d.arrow((410, 58), (480, 58))
    d.box(260, 120, 150, 56, "station archive\nafter decode", "station")
    d.arrow((335, 86), (335, 120), label="ack: on to the next")
    d.box(480, 120, 150, 56, "consumer", "program")
    d.arrow((410, 148), (480, 148))
    d.box(260, 200, 150, 50, "station monitor\ncapacity 100", "station")
    d.box(480, 200, 150, 50, "consumer", "program")
    d.arrow((140, 185), (200, 185), (200, 225), (260, 225))
    d.arrow((410, 225), (480, 225))
    d.box(260, 270, 50, 40, "w1", "station")
    d.box(318, 270, 50, 40, "w2", "station")
    d.box(376, 270, 50, 40, "w3", "station")
    d.arrow((140, 205), (180, 205), (180, 290), (260, 290))
    d.text(650, 62, "each product to one of them", "quiet", "start")
    d.text(650, 152, "a series", "quiet", "start")
    d.text(650, 229, "gets all that it selects", "quiet", "start")
    d.text(450, 294, "a group: each product to one of the stations", "quiet", "start")
    return d


def share_work() -> Drawing:
    d = Drawing("A killed consumer's products go to another one", 860, 230)
    d.box(20, 80, 110, 70, "queue")
    d.box(200, 80, 120, 70, "station\ndecode", "station")
    d.arrow((130, 115), (200, 115))
    d.box(480, 20, 140, 50, "worker one", "program")
    d.box(480, 90, 140, 50, "worker two", "program")
    d.box(480, 160, 140, 50, "worker three", "program")
    d.arrow((320, 95), (400, 95), (400, 45), (480, 45), label="lease")
    d.arrow((320, 115), (480, 115))
    d.arrow((320, 135), (400, 135), (400, 185), (480, 185))
    d.text(640, 50, "ack: done", "quiet", "start")
    d.text(640, 178, "kill -9", "bad", "start")
    d.arrow((640, 195), (800, 195), (800, 115), (620, 115), colour="bad", dashed=True)
    d.text(640, 218, "its products come back", "bad", "start")
    return d


def channels() -> Drawing:
    d = Drawing("Suppliers push to a channel, or are polled by it; its stations inherit its terms", 860, 230)
    for number, name in enumerate(["supplier\npush", "supplier\npush", "function\npolled"]):
        d.box(20, 20 + number * 66, 120, 54, name, "program")
    d.box(270, 60, 220, 110, "channel wx/radar/**\norder, timeout, limits,\nreliability, …\n13 options", "fabric")
    d.arrow((140, 47), (200, 47), (200, 90), (270, 90))
    d.arrow((140, 113), (270, 113))
    d.arrow((270, 140), (200, 140), (200, 179), (140, 179))
    d.box(570, 40, 110, 56, "station\ninherits", "station")
    d.box(570, 134, 110, 56, "station\ntightens", "station")
    d.arrow((490, 90), (530, 90), (530, 68), (570, 68))
    d.arrow((490, 140), (530, 140), (530, 162), (570, 162))
    d.box(740, 40, 100, 56, "consumers\npull", "program")
    d.box(740, 134, 100, 56, "callback\npush", "program")
    d.arrow((680, 68), (740, 68))
    d.arrow((680, 162), (740, 162))
    d.text(430, 215, "A channel holds no products: it is an agreement about a part of the queue.", "quiet")
    return d


def guarantees() -> Drawing:
    d = Drawing("What survives: put, flush, eviction", 860, 220)
    names = ["…", "41", "42", "43", "44", "45", "46", "47", "48"]
    d.cells(140, 80, 64, 50, names, ["area", *["queue"] * 5, *["program"] * 3])
    d.arrow((120, 105), (60, 105), colour="bad", dashed=True)
    d.text(20, 62, "evicted:\nan exact range", "bad", "start")
    d.text(364, 60, "on the disk: survives a power failure", "quiet")
    d.text(620, 60, "put: survives kill -9", "quiet")
    d.arrow((800, 105), (720, 105), label="put")
    d.arrow((524, 175), (524, 132))
    d.text(524, 195, "flush: once a second, or before put returns (durability disk)", "quiet")
    d.text(204, 155, "slow reader: told what is gone", "quiet")
    return d


def concurrency() -> Drawing:
    d = Drawing("One lock for writers, none for readers; one store commits", 860, 230)
    names = ["39", "40", "41", "42", "43", "44", ""]
    d.cells(200, 80, 70, 50, names, ["queue", "queue", "queue", "queue", "program", "program", "area"])
    d.text(410, 40, "invisible until one word is stored: a batch exists completely or not at all", "quiet")
    d.arrow((480, 175), (480, 132))
    d.text(480, 195, "head: readers see up to here")
    d.arrow((620, 165), (620, 132))
    d.text(640, 170, "tail: the commit", "ink", "start")
    d.box(20, 60, 120, 40, "writer\nholds the lock", "program")
    d.box(20, 120, 120, 40, "reader\nno lock, a pin", "station")
    d.arrow((140, 80), (170, 80), (170, 60), (585, 60), (585, 80))
    d.arrow((140, 140), (305, 140), (305, 130))
    d.text(20, 195, "A dead process holds nothing:\nthe next one undoes or completes its work.", "quiet", "start")
    return d


def product() -> Drawing:
    d = Drawing("The parts of a product", 860, 170)
    d.cells(20, 60, 117, 56, ["feed", "ident", "payload", "signature", "origin", "times", "properties"],
            ["station", "station", "queue", "fabric", "program", "program", "program"])  # fmt: skip
    d.text(195, 48, "identity: feed, ident and payload together", "quiet")
    d.text(195, 140, "wx/text/metar · SAUS70 KWBC 061200 · bytes", "quiet")
    d.text(430, 140, "16 bytes", "quiet")
    d.text(546, 140, "site, sequence", "quiet")
    d.text(663, 140, "created, inserted", "quiet")
    d.text(780, 140, "run=6, level=3", "quiet")
    return d


def files() -> Drawing:
    d = Drawing("The files of a queue, and a record", 860, 250)
    d.area(20, 20, 400, 210, "wx.queue, a directory")
    d.box(40, 55, 110, 44, "queue.json", "program")
    d.box(165, 55, 110, 44, "control", "program")
    d.box(290, 55, 110, 44, "names", "program")
    d.box(40, 112, 110, 44, "segments", "queue")
    d.box(165, 112, 110, 44, "duplicates", "fabric")
    d.box(290, 112, 110, 44, "cursors", "station")
    d.box(40, 169, 110, 44, "stations", "station")
    d.box(165, 169, 110, 44, "channels", "fabric")
    d.box(290, 169, 110, 44, "site", "fabric")
    d.text(650, 44, "a segment: index rows of 32 bytes, and records", "quiet")
    d.cells(470, 60, 62, 36, ["row", "row", "row", "…", "record", "record"], ["area"] * 4 + ["queue"] * 2)
    d.arrow((740, 96), (740, 150))
    d.text(470, 148, "a record, on disk and on the wire", "quiet", "start")
    d.cells(
        470,
        160,
        62,
        40,
        ["header", "feed", "ident", "prop.", "payload", "sum"],
        ["area", *["station"] * 3, "queue", "program"],
    )
    return d


def map_of_code() -> Drawing:
    d = Drawing("The folders of the source, in the order in which a product travels", 860, 170)
    names = [
        ("product\nwhat travels", "program"), ("selection\nwhich of it", "program"),
        ("kernel, log\nthe queue", "queue"),
        ("station\nwho gets it", "station"), ("channel,\nshare", "station"), ("link, relay,\nremote", "fabric"),
        ("slices,\npipeline", "table"), ("site, cli\nto run it", "program"),
    ]  # fmt: skip
    for number, (text, colour) in enumerate(names):
        d.box(14 + number * 105, 40, 98, 70, text, colour)
    d.arrow((20, 135), (840, 135))
    d.text(430, 157, "a folder imports only from folders to its left", "quiet")
    return d


def delivery() -> Drawing:
    d = Drawing("A bookmark moves in the same step in which the results are stored", 860, 210)
    d.box(20, 60, 170, 90, "queue\nhere, or\nat another site", "queue")
    d.box(290, 60, 150, 90, "program\nfollows", "fabric")
    d.area(560, 30, 280, 150, "one step: both or neither")
    d.box(580, 75, 110, 76, "results\nrows, or\na file", "table")
    d.box(710, 75, 110, 76, "bookmark\nqueue,\nposition", "station")
    d.arrow((190, 105), (290, 105), label="batches")
    d.arrow((440, 105), (560, 105), label="store")
    return d


DRAWINGS = [
    overview, journey, selections, replay, stations, share_work, channels, guarantees, concurrency, product, files,
    map_of_code, delivery,
]  # fmt: skip
