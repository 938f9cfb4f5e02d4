"""BUFR by ecCodes: one row for each message, with its header and the values of common elements.

`data` maps the name of an element in ecCodes (`airTemperature`) to its values in the order of the message: subset after
subset, level after level. A missing value is null. Elements that are not in `ELEMENTS` are left out; `descriptors`
lists everything in the message. ecCodes runs in a child process, because a damaged message can crash it.
"""

from collections.abc import Mapping, Sequence, Sized
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.pipeline.decoders.child_process import decode_in_child
from headrace.pipeline.decoders.decoder import TIME, Decoder, make_decoder
from headrace.pipeline.decoders.messages import bufr_messages

SCHEMA = pa.schema(
    {
        "message": pa.int32(),
        "edition": pa.int32(),
        "center": pa.int32(),
        "subcenter": pa.int32(),
        "category": pa.int32(),
        "subcategory": pa.int32(),
        "table_version": pa.int32(),
        "time": TIME,
        "subsets": pa.int32(),
        "observed": pa.bool_(),
        "compressed": pa.bool_(),
        "descriptors": pa.list_(pa.int32()),
        "data": pa.map_(pa.string(), pa.list_(pa.float64())),
    }
)
VALUES_MAX = 4 << 20  # of one message
ELEMENTS: Mapping[str, tuple[int, ...]] = MappingProxyType({  # name in ecCodes, and its descriptors
    "blockNumber": (1001,), "stationNumber": (1002,), "satelliteIdentifier": (1007, 1205),
    "year": (4001,), "month": (4002,), "day": (4003,), "hour": (4004,), "minute": (4005,), "second": (4006,),
    "latitude": (5001, 5002), "longitude": (6001, 6002), "heightOfStation": (7001,),
    "heightOfStationGroundAboveMeanSeaLevel": (7030,), "height": (7002, 7007, 7071), "pressure": (7004,),
    "nonCoordinatePressure": (10004,), "nonCoordinateGeopotentialHeight": (10009,),
    "pressureReducedToMeanSeaLevel": (10051,), "windDirection": (11001,), "windSpeed": (11002, 11083, 11084),
    "windDirectionAt10M": (11011,), "windSpeedAt10M": (11012,), "maximumWindGustSpeed": (11041, 11085, 11086),
    "airTemperature": (12001, 12101), "dewpointTemperature": (12003, 12024, 12103),
    "airTemperatureAt2M": (12004, 12104), "dewpointTemperatureAt2M": (12006, 12106), "temperature": (12023,),
    "brightnessTemperature": (12063, 12163), "relativeHumidity": (13003, 13009, 13193),
    "totalPrecipitationPast1Hour": (13019,), "totalPrecipitationPast6Hours": (13021,),
    "totalPrecipitationPast24Hours": (13023,), "horizontalVisibility": (20001,), "presentWeather": (20003,),
    "cloudCoverTotal": (20010,), "cloudAmount": (20011,), "heightOfBaseOfCloud": (20013, 20092),
    "oceanographicWaterTemperature": (22042, 22043, 22045), "seaSurfaceTemperature": (22049,),
})  # fmt: skip

Elements = list[tuple[str, pa.Array]]  # name and values

_TIME = ("typicalYear", "typicalMonth", "typicalDay", "typicalHour", "typicalMinute", "typicalSecond")


def read(payload: memoryview) -> pa.RecordBatch | str:
    try:
        rows = [(number, *_message(message)) for number, message in enumerate(bufr_messages(bytes(payload)))]
    except ValueError as error:
        return str(error)
    if not rows:
        return "no BUFR message"
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns[:-1], SCHEMA, strict=False)]
    return pa.RecordBatch.from_arrays([*arrays, _maps(columns[-1])], schema=SCHEMA)


def _maps(rows: Sequence[Elements]) -> pa.Array:
    """The column `data`, built from whole arrays: there may be millions of values."""
    names = [name for row in rows for name, _ in row]
    values = [array for row in rows for _, array in row]
    lists = pa.ListArray.from_arrays(_offsets(values), pa.concat_arrays([pa.array([], pa.float64()), *values]))
    return pa.MapArray.from_arrays(_offsets(rows), pa.array(names, pa.string()), lists)


def _offsets(parts: Sequence[Sized]) -> pa.Array:
    return pa.array(np.cumsum([0, *map(len, parts)]), pa.int32())


def _message(message: bytes) -> tuple[Any, ...]:
    import eccodes

    from headrace.pipeline.decoders import eccodes_handle as ecc

    with ecc.opened(message) as handle:
        header = _header(handle)
        descriptors = eccodes.codes_get_array(handle, "unexpandedDescriptors", int).tolist()
        eccodes.codes_set(handle, "skipExtraKeyAttributes", 1)
        eccodes.codes_set(handle, "unpack", 1)
        return (*header, descriptors, _data(handle))


def _header(handle: int) -> tuple[Any, ...]:
    from headrace.pipeline.decoders.eccodes_handle import moment, whole

    edition = whole(handle, "edition") or 0
    subcategory = "internationalDataSubCategory" if edition >= 4 else "dataSubCategory"
    return (
        edition,
        whole(handle, "bufrHeaderCentre"),
        whole(handle, "bufrHeaderSubCentre"),
        whole(handle, "dataCategory"),
        whole(handle, subcategory),
        whole(handle, "masterTablesVersionNumber"),
        moment(handle, *_TIME),
        whole(handle, "numberOfSubsets"),
        bool(whole(handle, "observedData")),
        bool(whole(handle, "compressedData")),
    )


def _data(handle: int) -> Elements:
    import eccodes

    from headrace.pipeline.decoders.eccodes_handle import MISSING_DOUBLE

    data: Elements = []
    total = 0
    present = set(eccodes.codes_get_array(handle, "expandedDescriptors", int).tolist())
    for element, descriptors in ELEMENTS.items():
        if present.isdisjoint(descriptors):
            continue  # ecCodes is slow to find that out
        try:
            total += eccodes.codes_get_size(handle, element)
            if total > VALUES_MAX:
                raise ValueError(f"more than {VALUES_MAX:,} values in one BUFR message")
            values = eccodes.codes_get_array(handle, element, float)
        except (eccodes.KeyValueNotFoundError, eccodes.ArrayTooSmallError):
            continue
        data.append((element, pa.array(values, pa.float64(), mask=np.asarray(values == MISSING_DOUBLE))))
    return data


DECODER: Decoder = make_decoder("bufr", SCHEMA, partial(decode_in_child, f"{__name__}:read", SCHEMA))
