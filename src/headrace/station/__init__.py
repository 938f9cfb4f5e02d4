"""Stations: which consumer of this machine gets which product, and what happens to it."""

from headrace.station.consumer import Consumer
from headrace.station.draft import Draft
from headrace.station.station import Station
from headrace.station.statistics import ConsumerStatistics, Lag, Parked, StationStatistics
from headrace.station.terms import StationTerms

__all__ = ["Consumer", "ConsumerStatistics", "Draft", "Lag", "Parked", "Station", "StationStatistics", "StationTerms"]
