"""Stations that report METARs, and the collectives that their reports travel in.

A collective is a national set of stations under one family of headings. Its first four letters
and centre are fixed; the number counts up, one for each group of neighbours in the list. Codes
are ICAO location indicators.

`style` is how the country writes its reports:

    us       statute miles, inches of mercury, remarks with sea-level pressure and tenths of degrees
    canada   statute miles, inches of mercury, remarks with sea-level pressure
    icao     metres or CAVOK, hectopascals, no remarks

There are enough stations here that each has to report about once a minute, at most, to fill the
bulletins of the real feed.
"""

from dataclasses import dataclass
from typing import Literal

Style = Literal["us", "canada", "icao"]

STATIONS_PER_HEADING = 4


@dataclass(frozen=True, slots=True)
class Collective:
    """Stations of one country or of a part of it."""

    data_type: str  # TTAA of its headings
    number: int  # ii of its first heading
    centre: str  # CCCC
    style: Style
    climate_c: int  # mean temperature
    stations: tuple[str, ...]

    def heading_name(self, station_index: int) -> str:
        """TTAAii of the bulletins that start with this station."""
        return f"{self.data_type}{self.number + station_index // STATIONS_PER_HEADING:02d}"


_US_NORTH = """
    KDEN KBOS KJFK KLGA KEWR KORD KMDW KMSP KDTW KCLE KPIT KBUF KSYR KALB KBTV KPWM KBGR KMHT
    KPVD KBDL KHPN KISP KPHL KACY KBWI KDCA KIAD KRIC KORF KROA KCRW KCMH KDAY KCVG KIND KFWA
    KSBN KGRR KLAN KFNT KMKE KMSN KGRB KRFD KMLI KPIA KSPI KDSM KCID KALO KSUX KOMA KLNK KGRI
    KFSD KRAP KABR KBIS KFAR KGFK KMOT KDLH KINL KRST KBIL KGTF KHLN KMSO KGEG KSEA KPDX KEUG
    KBOI KPIH KSLC KGJT KCOS KPUB KCYS KCPR KRIW KSHR KLND KRKS KALS KASE KEGE"""
_US_SOUTH = """
    KATL KMIA KTPA KMCO KJAX KTLH KPNS KMOB KBHM KHSV KMGM KJAN KMSY KBTR KLFT KLCH KSHV KLIT
    KFSM KMEM KBNA KTYS KCHA KCLT KRDU KGSO KILM KCHS KCAE KGSP KSAV KAGS KMCN KCSG KDAB KRSW
    KEYW KPBI KFLL KDFW KDAL KIAH KHOU KAUS KSAT KCRP KBRO KMAF KLBB KAMA KABI KSPS KELP KACT
    KTYL KGLS KOKC KTUL KICT KMCI KSTL KSGF KTOP KDDC KGLD KABQ KROW KPHX KTUS KFLG KYUM KLAS
    KRNO KELY KLAX KSAN KSFO KOAK KSJC KSAC KFAT KBFL KSBA KMRY KSCK KRDD KONT KBUR"""
_US_SMALLER = """
    KAVL KAVP KABE KMDT KIPT KELM KBGM KROC KERI KCAK KTOL KMFD KYNG KCKB KHTS KLEX KSDF KEVV
    KBWG KPAH KSTJ KCOU KJLN KGCK KHYS KSLN KHUT KMHK KAUW KEAU KLSE KCWA KRHI KAPN KMQT KAZO
    KMKG KTVC KPLN KBTL KJXN KLWS KPUW KYKM KALW KOLM KBLI KAST KSLE KMFR KOTH KRDM KLMT KTWF
    KIDA KJAC KCOD KGCC KWRL KBZN KBTM KGPI KLWT KHVR KGGW KMLS KDIK KISN KJMS KATY KHON KPIR
    KMHE KYKN KOFK KLBF KBFF KAIA KSNY KAKO KLHX KTAD KDRO KMTJ KGUC KHDN KCAG"""
_CANADA = """
    CYYZ CYUL CYVR CYYC CYEG CYOW CYWG CYHZ CYQB CYXE CYQR CYYT CYXY CYZF CYYJ CYQM CYFC CYSJ
    CYQX CYQT CYAM CYSB CYXU CYHM CYKA CYLW CYXS CYMM CYQU CYFB"""
_BRITAIN = """
    EGLL EGKK EGSS EGGW EGLC EGCC EGGP EGBB EGNX EGNT EGPF EGPH EGPD EGAA EGAC EGFF EGGD EGHI
    EGTE EGNM"""
_GERMANY = "EDDF EDDM EDDB EDDH EDDL EDDK EDDS EDDN EDDV EDDW EDDP EDDC EDDE EDDR EDDG"
_FRANCE = "LFPG LFPO LFML LFMN LFLL LFBO LFBD LFRS LFRN LFST LFSB LFLS LFMT LFRB LFQQ"
_SPAIN = "LEMD LEBL LEMG LEPA LEVC LEAL LEZL LEBB LEST LEZG LEGR LEIB"
_ITALY = "LIRF LIMC LIML LIPZ LIPE LIRN LICC LICJ LIEE LIRQ LIMF LIPX"
_NORWAY = "ENGM ENBR ENVA ENZV ENTC ENBO ENEV ENDU ENCN ENAL"
_SWEDEN = "ESSA ESGG ESMS ESSB ESNU ESPA ESNZ ESNQ"
_FINLAND = "EFHK EFTU EFTP EFOU EFRO EFKU EFVA EFJO"
_JAPAN = "RJTT RJAA RJBB RJOO RJFF RJCC RJGG RJSS RJOA RJFK ROAH RJNK"
_AUSTRALIA = "YSSY YMML YBBN YPPH YPAD YSCB YBCS YPDN YMHB YBTL YBAS YPKG"
_INDIA = "VIDP VABB VOMM VOBL VECC VOHS VAAH VOCI VOTV VEGT"
_BRAZIL = "SBGR SBGL SBBR SBSP SBRJ SBCF SBSV SBRF SBFZ SBPA SBCT SBEG SBBE SBFL"
_SOUTH_AFRICA = "FAOR FACT FALE FABL FAPE FAGG FAKM FAUP"

COLLECTIVES: tuple[Collective, ...] = (
    Collective("SAUS", 40, "KWBC", "us", 8, tuple(_US_NORTH.split())),
    Collective("SAUS", 70, "KWBC", "us", 19, tuple(_US_SOUTH.split())),
    Collective("SAUS", 10, "KWBC", "us", 9, tuple(_US_SMALLER.split())),
    Collective("SACN", 31, "CWAO", "canada", 2, tuple(_CANADA.split())),
    Collective("SAUK", 31, "EGRR", "icao", 10, tuple(_BRITAIN.split())),
    Collective("SADL", 31, "EDZW", "icao", 10, tuple(_GERMANY.split())),
    Collective("SAFR", 31, "LFPW", "icao", 13, tuple(_FRANCE.split())),
    Collective("SASP", 31, "LEMM", "icao", 17, tuple(_SPAIN.split())),
    Collective("SAIY", 31, "LIIB", "icao", 16, tuple(_ITALY.split())),
    Collective("SANO", 31, "ENMI", "icao", 4, tuple(_NORWAY.split())),
    Collective("SASN", 31, "ESWI", "icao", 4, tuple(_SWEDEN.split())),
    Collective("SAFI", 31, "EFKL", "icao", 3, tuple(_FINLAND.split())),
    Collective("SAJP", 31, "RJTD", "icao", 16, tuple(_JAPAN.split())),
    Collective("SAAU", 31, "AMMC", "icao", 20, tuple(_AUSTRALIA.split())),
    Collective("SAIN", 31, "VIDP", "icao", 27, tuple(_INDIA.split())),
    Collective("SABZ", 31, "SBBR", "icao", 24, tuple(_BRAZIL.split())),
    Collective("SAZA", 31, "FAPR", "icao", 18, tuple(_SOUTH_AFRICA.split())),
)
