"""A pqact.conf of many entries in the forms that sites use, for the traffic of the generator. For people:

python pqact_samples.py SEED ENTRIES > pqact.conf
"""

import random
import sys

RADARS = ["LOT", "CLX", "LSX", "TBW", "CLE", "EWX", "JAX", "FFC", "BOX", "LWX", "FTG", "OKX", "MPX", "HGX", "ATX"]
LEVEL3 = ["N0Q", "N1Q", "N0U", "NST", "DVL", "NVW", "DPA", "N0S"]
MODELS = ["gfs", "rap", "hrrr", "sref", "nam"]
DAY = "([0-3][0-9])([0-2][0-9])([0-5][0-9])"
LOG = 'out=$1; shift; echo "$@" >> "$out"\n'  # log.sh

Chance = random.Random


def pqact_conf(seed: int, count: int) -> str:
    """Entries of all kinds, some of which write to the same files and programs."""
    chance = Chance(seed)
    kinds = [_metar, _bulletin, _level3, _level3_pipe, _level2, _grid, _conduit, _bufr, _any, _satellite, _exec]
    weights = [10, 12, 24, 8, 10, 8, 8, 5, 3, 5, 1]
    entries = [chance.choices(kinds, weights)[0](chance, number) for number in range(count - 3)]
    entries.insert(count // 2, "ANY-NEXRAD2\t^(NOUS|TEST)\tNOOP")
    entries.insert(count * 3 // 4, "WMO\t^_ELSE_$\tFILE\trest/wmo_%Y%m%d.txt")
    return "# seed " + str(seed) + "\n" + "\n".join([*entries, "ANY\t^_ELSE_$\tFILE\t-close\trest/(seq).raw"]) + "\n"


def _metar(chance: Chance, number: int) -> str:
    feed = chance.choice(["IDS|DDPLUS", "WMO", "DDPLUS|IDS", "WMO-HDS"])
    area = chance.choice(["US", "CA", "UK", "IY", "FI", "..", ".."])
    path = chance.choice([
        r"surface/sao/(\2:yyyy)(\2:mm)\2\3_sao.wmo", r"surface/(\2:yy)(\2:mmm)\2/\1.wmo", r"surface/%Y%m%d_\3.wmo",
    ])  # fmt: skip
    if chance.random() < 0.2:
        return f"{feed}\t^S[AP]{area}[0-9][0-9] (....) {DAY}\n\tPIPE\t{_flags(chance, '-strip', '-flush')}tee -a dec/metar.gem"
    return f"{feed}\t^S[AP]{area}[0-9][0-9] (....) {DAY}\n\tFILE\t{_flags(chance, '-close', '-flush')}{path}"


def _bulletin(chance: Chance, number: int) -> str:
    name = chance.choice(["AFD", "CWF", "LSR", "ZFP", "TAF", "HWO", "RWS", "..."])
    office = chance.choice([*RADARS, "...", "..."])
    pattern = f"^[FNWC]...[0-9][0-9] (K...) {DAY}.*/p({name})({office})"
    if chance.random() < 0.15:
        return f"DDPLUS\t{pattern}\tPIPE\t-close {_flags(chance, '-metadata')}tee -a bulletin/close_{number}.txt"
    action = chance.choice(["FILE", "STDIOFILE"])
    path = chance.choice([
        r"bulletin/\5/\6_(\2:yyyy)(\2:mm)\2.txt", rf"bulletin/{number}/\1.\5", r"bulletin/(\2:ddd)/\5.txt",
    ])  # fmt: skip
    return f"IDS|DDPLUS\t{pattern}\t{action}\t{_flags(chance, '-strip', '-close')}{path}"


def _level3(chance: Chance, number: int) -> str:
    code, radar = chance.choice([*LEVEL3, "..."]), chance.choice(RADARS)
    pattern = f"^SDUS[2357]. (K{radar}) {DAY}.*/p({code})({radar})"
    options = _flags(chance, "-overwrite", "-close", "-metadata")
    path = chance.choice([r"nids/\6/\5/\5_(\2:yyyy)(\2:mm)\2_\3\4", rf"nids/{radar}/(seq)", rf"nids/\5_latest_{radar}"])
    if "-overwrite" not in options:
        path = path.replace("_latest_", "_all_")
    else:
        options = options.replace("-metadata ", "")  # LDM truncates such a file in the middle
        path = f"over/{path}"
    return f"NEXRAD3\t{pattern}\n\tFILE\t{options}{path}"


def _level3_pipe(chance: Chance, number: int) -> str:
    code = chance.choice(LEVEL3)
    pattern = f"^SDUS[2357]. (K...) {DAY}.*/p({code})(...)"
    how = chance.choice(["", "-metadata ", "-metadata -nodata "])
    kind = how.replace("-", "").replace(" ", "") or "plain"
    return f"NEXRAD3\t{pattern}\tPIPE\t{how}tee -a dec/{kind}_{chance.choice(RADARS)}_\\5.dat"


def _level2(chance: Chance, number: int) -> str:
    radar = chance.choice(RADARS)
    pattern = f"^L2-BZIP2/(K{radar})/([0-9]{{8}})([0-9]{{6}})/([0-9]+)/([0-9]+)/([SIE])(/V0[0-9])?(/x)?"
    path = chance.choice([r"level2/\1/\2_\3_\4.raw", r"level2/\1_\6\8.raw", rf"level2/{number}\7/&.raw"])
    return f"{chance.choice(['NEXRAD2', 'CRAFT'])}\t{pattern}\tFILE\t{path}".replace("CRAFT", "NEXRAD2")


def _grid(chance: Chance, number: int) -> str:
    model = chance.choice(MODELS).upper()
    pattern = f"^Y.Q([A-Z])([0-9][0-9]) KWB. {DAY}.*!grib2/ncep/({model})/#([0-9]+)/([0-9]{{12}})F([0-9]+)/"
    path = chance.choice([r"ngrid/\6/\(8)F\(9).grib2", rf"ngrid/\1\2/(\3:mm)\3_{number % 7}.grib2"])
    return f"NGRID\t{pattern}\tFILE\t{_flags(chance, '-close')}{path}"


def _conduit(chance: Chance, number: int) -> str:
    model = chance.choice(MODELS)
    pattern = f"^data/nccf/com/({model})/prod/{model}.([0-9]+)/.*f([0-9][0-9][0-9]) !grib2/[^/]*/[^/]*/#[0-9]*/[0-9F]*/([^/]*)/(.*)!"
    path = chance.choice([r"conduit/\1/\2/f\3.grib2", r"conduit/\1/\4.grib2", rf"conduit/{number % 11}_\2.grib2"])
    return f"CONDUIT\t{pattern}\tFILE\t{path}"


def _bufr(chance: Chance, number: int) -> str:
    center = chance.choice(["EDZW", "CWAO", "AMMC", "LFPW", "...."])
    return f"{chance.choice(['HDS', 'NPOINT', 'HDS|NPOINT'])}\t^I(..)[A-Z](..) ({center}) {DAY}\tFILE\tbufr/\\3/\\1_{number % 5}.bufr"


def _any(chance: Chance, number: int) -> str:
    feed = chance.choice(["ANY", "ANY-CONDUIT", "WMO|NEXRAD3|NGRID", "ANY-NEXRAD2-NEXRAD3"])
    return f"{feed}\t(.)([0-9])(x?) K{chance.choice(RADARS)} ([0-3][0-9])\tFILE\tany/%Y/%j/{number % 13}_\\2\\3.dat"


def _satellite(chance: Chance, number: int) -> str:
    band = chance.randrange(1, 17)
    pattern = rf"^OR_ABI-L2-CMIP([A-Z])[0-9]?-M6C{band:02}_G16_s([0-9]{{4}})([0-9]{{3}})([0-9]*)_.*\.nc$"
    return f"NIMAGE\t{pattern}\tFILE\t-overwrite\tover/sat/C{band:02}/\\1_\\2\\3.nc"


def _exec(chance: Chance, number: int) -> str:
    return f'LIGHTNING|IDS\t^(LIGHT|SA)([A-Z]*)\tEXEC\t-wait\tsh log.sh log/{number % 3}.txt {number} \\1 "a b" (seq)'


def _flags(chance: Chance, *options: str) -> str:
    return "".join(f"{option} " for option in options if chance.random() < 0.4)


if __name__ == "__main__":
    print(pqact_conf(int(sys.argv[1]), int(sys.argv[2])), end="")
