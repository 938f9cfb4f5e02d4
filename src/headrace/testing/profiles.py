"""What real feeds look like: how many products, how large, how far apart.

Facts only, no behaviour. Rates are hourly means of public feed statistics (October 2017 and April
2024; the newer one where both exist). Sizes are quantiles of measured samples:

    ngrid     157,976 products of three hours, June 2015. The largest, of 54 MB, is not in the
              table but stands apart as a giant: one was seen in 28,166 products and one in
              157,976.
    metar     2,723 bulletins of one hour, January 2020.
    bulletin  752 text products. The largest hundredth is left out: that sample was collected for
              its oddities, and with them the mean would be four times the published 1,545 bytes.
    nexrad2   55 records of one volume, KFTG, April 2015.
    nexrad3   134 products.
    bufr      161 messages.

Feeds of which only the mean size is known (conduit, satellite, lightning) have a shape of our own
around that mean. Detector events are about the 5 kB usual at CLAS, and a monitor frame leaves
each of ten telescope subsystems every half second, with up to the 34 kB of CARMA; the rate of
events is our choice, a prescaled stream for monitoring.

Gaps between arrivals are those of the three ngrid hours: half of them are under 5 ms although the
mean is over ten times that. Arrivals come in bursts; they are not Poisson.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from headrace.testing.quantiles import Quantiles


@dataclass(frozen=True, slots=True)
class Profile:
    """The measured outside of one kind of feed."""

    products_per_s: float
    sizes_bytes: Quantiles


_GRID_SIZES_BYTES = Quantiles.of(
    {
        0: 210,
        0.01: 402,
        0.05: 6115,
        0.1: 9761,
        0.25: 21574,
        0.5: 41050,
        0.75: 72956,
        0.9: 131707,
        0.95: 243428,
        0.99: 1638107,
        0.999: 3920763,
        1: 3920763,
    }
)

GAPS_S = Quantiles.of(
    {
        0: 0,
        0.01: 0,
        0.05: 0.001,
        0.25: 0.003,
        0.5: 0.005,
        0.75: 0.012,
        0.9: 0.084,
        0.95: 0.17,
        0.99: 0.678,
        0.999: 12.129,
        1: 52.625,
    }
)

GIANT_BYTES = 53_762_390
GIANT_SHARE = 2 / (28_166 + 157_976)  # of the ngrid products

PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        "metar": Profile(
            0.756,
            Quantiles.of(
                {
                    0: 39,
                    0.01: 43,
                    0.05: 92,
                    0.1: 97,
                    0.25: 112,
                    0.5: 162,
                    0.75: 593,
                    0.9: 1685,
                    0.95: 3670,
                    0.99: 3750,
                    1: 3764,
                }
            ),
        ),
        "bulletin": Profile(
            11.5,
            Quantiles.of(
                {
                    0: 57,
                    0.01: 83,
                    0.05: 167,
                    0.1: 253,
                    0.25: 785,
                    0.5: 1645,
                    0.75: 3315,
                    0.9: 5159,
                    0.95: 6436,
                    1: 26363,
                }
            ),
        ),
        "bufr": Profile(
            8.417,
            Quantiles.of(
                {
                    0: 94,
                    0.01: 96,
                    0.05: 184,
                    0.1: 432,
                    0.25: 1160,
                    0.5: 5912,
                    0.75: 25832,
                    0.9: 50400,
                    0.95: 56312,
                    0.99: 145216,
                    0.999: 207368,
                    1: 1388264,
                }
            ),
        ),
        "nexrad2": Profile(
            30.482,
            Quantiles.of(
                {
                    0: 12379,
                    0.05: 16382,
                    0.1: 20488,
                    0.25: 27319,
                    0.5: 34840,
                    0.75: 54660,
                    0.9: 85816,
                    0.95: 97383,
                    0.99: 119549,
                    1: 124046,
                }
            ),
        ),
        "nexrad3": Profile(
            25.435,
            Quantiles.of(
                {
                    0: 134,
                    0.01: 151,
                    0.05: 1400,
                    0.1: 2398,
                    0.25: 8406,
                    0.5: 20319,
                    0.75: 48616,
                    0.9: 71233,
                    0.95: 113537,
                    0.99: 160362,
                    0.999: 258527,
                    1: 514319,
                }
            ),
        ),
        "ngrid": Profile(18.478, _GRID_SIZES_BYTES),
        "conduit": Profile(24.387, _GRID_SIZES_BYTES.scaled(89_846 / _GRID_SIZES_BYTES.mean())),
        "satellite": Profile(
            1.813,
            Quantiles.of({0: 60_000, 0.1: 300_000, 0.5: 1_500_000, 0.9: 5_000_000, 1: 12_000_000}),
        ),
        "lightning": Profile(0.16, Quantiles.of({0: 150, 0.1: 700, 0.5: 4_000, 0.9: 14_000, 1: 40_000})),
        "event": Profile(20.0, Quantiles.of({0: 400, 0.1: 2_000, 0.5: 4_700, 0.9: 8_500, 1: 30_000})),
        "monitor": Profile(20.0, Quantiles.of({0: 1_000, 0.5: 3_000, 1: 34_000})),
    }
)
