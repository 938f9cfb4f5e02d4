"""Drawings of payloads: a file in fragments, signed products, and products that are stored compressed."""

from draw import Drawing


def send() -> Drawing:
    d = Drawing("A file is cut into fragments, which pass through a queue; receipts say which are missing", 860, 300)
    d.box(20, 60, 120, 130, "volume.h5\n50 MB", "program")
    d.cells(40, 200, 16, 24, list("012345"), ["program"] * 6)
    d.box(180, 90, 110, 70, "headrace\nsend", "program")
    d.area(340, 30, 190, 210, "queue: 16 MiB")
    d.cells(356, 70, 26, 34, ["m", "0", "1", "2", "3", "4"], ["station", *["queue"] * 5])
    d.text(435, 132, "fragments, m: manifest", "quiet")
    d.cells(372, 160, 62, 34, ["receipt", "2?"], ["station", "table"])
    d.text(435, 222, "receipts: what is missing", "quiet")
    d.box(580, 90, 110, 70, "headrace\nreceive", "program")
    d.box(730, 60, 115, 130, "incoming/\nvolume.h5\nafter all hashes\nwere checked", "table")
    d.arrow((140, 125), (180, 125))
    d.arrow((290, 110), (352, 88))
    d.arrow((512, 88), (580, 110))
    d.arrow((690, 125), (730, 125))
    d.arrow((580, 145), (502, 176), dashed=True)
    d.arrow((368, 176), (290, 145), dashed=True)
    d.text(20, 272, "At most half of the queue is on its way. After a break only what receipts name is sent again.",
           "quiet", "start")  # fmt: skip
    return d


def signatures() -> Drawing:
    d = Drawing("A site signs what leaves it; whoever gets it verifies that, whatever lies between", 860, 260)
    d.box(20, 40, 130, 70, "denver\nprivate key", "fabric")
    d.cells(20, 150, 32, 40, ["A", "B", "C", "D"], ["station"] * 4)
    d.text(85, 214, "a page of products", "quiet")
    d.arrow((85, 150), (85, 110), label="")
    d.box(230, 40, 170, 70, "one signature of\nthe root of a tree", "program")
    d.arrow((150, 75), (230, 75), label="signs")
    d.cells(230, 150, 85, 40, ["A + path", "C + path"], ["station"] * 2)
    d.text(330, 214, "each with the signature", "quiet")
    d.box(490, 40, 130, 70, "a relay\nno key", "program")
    d.arrow((400, 75), (490, 75), label="link")
    d.text(555, 140, "cannot forge, alter\nor replay", "quiet")
    d.box(710, 40, 130, 70, "boulder\npublic key", "fabric")
    d.arrow((620, 75), (710, 75), label="link")
    d.box(710, 170, 130, 60, "stored")
    d.arrow((775, 110), (775, 170), label="verified")
    d.arrow((710, 100), (620, 200), label="", colour="bad", dashed=True)
    d.text(600, 222, "refused, and counted", "quiet")
    return d


def compression() -> Drawing:
    d = Drawing(
        "Products are compressed where they enter a channel and expanded where a program looks at them", 860, 250
    )
    d.box(20, 70, 120, 70, "put\n4,000 bytes", "program")
    d.area(200, 30, 190, 180, "queue at denver")
    d.box(220, 65, 150, 80, "channel\ncompress = zstd\n700 bytes stored", "queue")
    d.box(220, 160, 150, 34, "dictionary", "station")
    d.area(480, 30, 190, 180, "queue at boulder")
    d.box(500, 65, 150, 80, "the same record\n700 bytes", "queue")
    d.box(500, 160, 150, 34, "dictionary", "station")
    d.box(720, 70, 120, 70, "payload\n4,000 bytes", "program")
    d.arrow((140, 105), (220, 105))
    d.arrow((370, 105), (500, 105), label="as stored")
    d.arrow((370, 177), (500, 177), label="once", dashed=True)
    d.arrow((650, 105), (720, 105))
    d.text(20, 236, "Feed, ident, signature and size are those of the product as it was put.", "quiet", "start")
    return d


DRAWINGS = (send, signatures, compression)
