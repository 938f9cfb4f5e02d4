"""Places of upstreams: what one site says about others cannot use them up."""

from headrace.relay.receive.places import LISTED_BY_ONE_MAX, LISTED_MAX, UPSTREAMS_MAX, Key, Places


def take(places: Places, taken: set[Key], count: int, listed_by: str, prefix: str = "x") -> int:
    """How many of so many sites find a place."""
    found = 0
    for number in range(count):
        key = ("r", f"{prefix}{number}")
        if places.is_free(key, listed_by, taken):
            taken.add(key)
            found += 1
    return found


def test_the_origins_that_one_site_lists_get_a_quarter_of_the_places_and_the_rest_is_counted() -> None:
    places, taken = Places(), set[Key]()
    assert take(places, taken, 1000, "liar") == LISTED_BY_ONE_MAX
    assert places.turned_away == {"liar": 1000 - LISTED_BY_ONE_MAX}
    assert take(places, taken, 10, "honest", "y") == 10


def test_sites_that_are_present_find_a_place_however_many_origins_are_listed() -> None:
    places, taken = Places(), set[Key]()
    for liar in range(9):
        take(places, taken, 1000, f"liar{liar}", f"{liar}/")
    assert len(taken) == LISTED_MAX
    assert take(places, taken, UPSTREAMS_MAX, "") == UPSTREAMS_MAX - LISTED_MAX
    assert places.turned_away[""] == LISTED_MAX


def test_a_listed_origin_that_appears_gives_its_place_to_another_one() -> None:
    places, taken = Places(), set[Key]()
    take(places, taken, 1000, "b")
    assert not places.is_free(("r", "y"), "b", taken)
    places.confirm(("r", "x0"))
    assert places.is_free(("r", "y"), "b", taken)


def test_a_site_that_lists_fewer_origins_later_is_no_problem_any_more() -> None:
    places, taken = Places(), set[Key]()
    take(places, taken, 1000, "b")
    places.begin_list("b")
    assert places.turned_away == {}


def test_a_site_that_a_rule_names_always_has_a_place() -> None:
    places, taken = Places(), set[Key]()
    take(places, taken, 2 * UPSTREAMS_MAX, "")
    assert not places.is_free(("r", "y"), "", taken)
    assert places.is_free(("r", "y"), "", taken, is_named=True)
    assert places.turned_away == {"": UPSTREAMS_MAX}
