"""Fields whose texts are all read are not searched, and say where texts are read all the same."""

from packer.source.read_places import ReadPlaces

OWN = ("messages",)


def test_a_field_whose_texts_are_all_read_is_left_out_and_its_places_are_noted() -> None:
    places = ReadPlaces()
    row = {"messages": [{"role": "user", "content": "Hi"}, {"call": '{"city": "Oban"}'}], "source": "Hi"}
    assert places.left(row, OWN, {"user", "Hi", "Oban"}) == {"source": "Hi"}
    assert places.paths == {
        ("messages",),
        ("messages", "[]"),
        ("messages", "[]", "role"),
        ("messages", "[]", "content"),
        ("messages", "[]", "call"),
        ("messages", "[]", "call", "city"),
    }


def test_a_field_with_one_text_that_is_not_read_stays_whole_and_notes_nothing() -> None:
    places = ReadPlaces()
    for left in ("Oban", '{"city": "Oban"}', "[broken"):
        row = {"messages": [{"role": "user", "content": "Hi", "other": left}]}
        assert places.left(row, OWN, {"user", "Hi"}) == row
    assert places.paths == set()


def test_blank_texts_and_numbers_are_no_texts_to_be_read() -> None:
    places = ReadPlaces()
    assert places.left({"messages": [{"content": "", "other": " \n", "weight": 1}]}, OWN, set()) == {}
    assert places.paths == set()
