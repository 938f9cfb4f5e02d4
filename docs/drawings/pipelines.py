"""Drawings of the pipeline: Spark, rules, decoders, actions, archives."""

from draw import Drawing


def spark() -> Drawing:
    d = Drawing("Tasks read stretches of the log as Arrow batches", 860, 230)
    d.box(20, 60, 90, 100, "queue\nor site")
    d.cells(160, 80, 78, 50, ["1 – 90", "91 – 170", "171 – 300"], ["queue"] * 3)
    d.arrow((110, 105), (160, 105))
    d.text(277, 62, "a micro-batch, cut by weight", "quiet")
    for number in range(3):
        d.box(450, 25 + number * 62, 120, 48, "task\nArrow batch", "table")
        d.arrow((394, 105), (420, 105), (420, 49 + number * 62), (450, 49 + number * 62))
    d.box(680, 70, 150, 70, "DataFrame\nsequence, feed, …", "program")
    for number in range(3):
        d.arrow((570, 49 + number * 62), (620, 49 + number * 62), (620, 105), (680, 105))
    d.text(430, 218, "The checkpoint keeps the range: a repeated batch reads the same products.", "quiet")
    return d


def rules() -> Drawing:
    d = Drawing("A rule: select, decode, SQL, actions", 860, 150)
    parts = [("products", "queue"), ("decoded\nrows", "table"), ("rows", "table")]
    for number, (text, colour) in enumerate(parts):
        d.box(120 + number * 200, 40, 110, 60, text, colour)
    d.arrow((20, 70), (120, 70), label="select")
    d.arrow((230, 70), (320, 70), label="decode")
    d.arrow((430, 70), (520, 70), label="sql")
    d.arrow((630, 70), (690, 70))
    d.box(690, 25, 150, 90, "actions\nfile, table, publish,\nexec, pipe, alert", "program")
    d.arrow((375, 100), (375, 130), (660, 130), colour="bad", dashed=True)
    d.text(668, 135, "dead letters", "bad", "start")
    return d


def actions() -> Drawing:
    d = Drawing("A repeated batch does no harm", 860, 220)
    d.box(20, 80, 110, 60, "batch 7\nrows", "table")
    d.box(220, 80, 140, 60, "journal\n7 done before?", "fabric")
    d.arrow((130, 110), (220, 110))
    names = ["file", "table", "publish", "exec, pipe", "alert"]
    for number, text in enumerate(names):
        d.box(480, 10 + number * 41, 130, 34, text, "program")
        d.arrow((360, 110), (420, 110), (420, 27 + number * 41), (480, 27 + number * 41))
    d.text(385, 150, "no", "quiet")
    d.arrow((290, 140), (290, 190), label="yes: skip")
    d.text(630, 50, "exactly once: file, table,", "quiet", "start")
    d.text(630, 68, "publish, alert", "quiet", "start")
    d.text(630, 155, "at least once: programs", "quiet", "start")
    return d


def decoders() -> Drawing:
    d = Drawing("A decoder turns products into rows; a product that fails becomes a dead letter", 860, 190)
    for number in range(3):
        d.box(20, 20 + number * 54, 140, 42, f"bulletin {number + 1}", "queue")
        d.arrow((160, 41 + number * 54), (220, 41 + number * 54), (220, 95), (270, 95))
    d.box(270, 60, 130, 70, "decoder\nmetar", "table")
    d.cells(480, 30, 110, 34, ["station", "observed", "temp."], ["area"] * 3)
    d.cells(480, 64, 110, 34, ["KDEN", "12:53", "33.0"], ["table"] * 3)
    d.cells(480, 98, 110, 34, ["KPHX", "12:51", "40.0"], ["table"] * 3)
    d.arrow((400, 95), (480, 95))
    d.arrow((335, 130), (335, 165), (480, 165), colour="bad", dashed=True)
    d.text(490, 170, "dead letter, with the reason", "bad", "start")
    return d


def archive() -> Drawing:
    d = Drawing("Products to a table, and back into a queue", 860, 170)
    d.box(20, 50, 120, 70, "queue")
    d.box(350, 50, 160, 70, "table of products\nParquet or Delta", "table")
    d.box(720, 50, 120, 70, "queue\nthe same")
    d.arrow((140, 85), (350, 85), label="rule with table, no sql")
    d.arrow((510, 85), (720, 85), label="archive restore")
    d.text(
        430,
        150,
        "Feed, ident, payload, signature, origin and times come back: restoring them again adds nothing.",
        "quiet",
    )
    return d


def products_into_a_table() -> Drawing:
    d = Drawing("Two ways into a table: a rule, or a DataFrame", 860, 200)
    d.box(20, 65, 110, 70, "wx.queue")
    d.box(240, 30, 200, 56, "rules.toml\nheadrace pipeline run", "program")
    d.box(240, 115, 200, 56, "your program\nspark.readStream", "program")
    d.arrow((130, 90), (180, 90), (180, 58), (240, 58))
    d.arrow((130, 110), (180, 110), (180, 143), (240, 143))
    d.box(560, 30, 130, 56, "tables/hot\nParquet", "table")
    d.box(560, 115, 130, 56, "any Spark\nsink", "table")
    d.arrow((440, 58), (560, 58), label="exactly once")
    d.arrow((440, 143), (560, 143))
    d.text(705, 62, "pandas, polars,", "quiet", "start")
    d.text(705, 80, "DuckDB, Spark", "quiet", "start")
    return d


DRAWINGS = [spark, rules, actions, decoders, archive, products_into_a_table]
