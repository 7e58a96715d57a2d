"""Partitions of Parquet and Arrow files: runs of row groups, cut where the nominal cuts of JSON lines are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_formats import as_arrow, as_parquet

from packer.source.partition import cut_groups, partition_file
from packer.source.table_files import Group

ROWS = [{"text": f"row {i} " + "x" * (i * 37 % 90), "other": i} for i in range(40)]
WRITERS = {"parquet": as_parquet, "arrow": as_arrow}

sizes = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 400)), max_size=30)


def groups_of(sizes):
    """Groups of so many rows and bytes."""
    return [
        Group(number=i, start=0, stop=0, num_rows=rows, num_bytes=num_bytes)
        for i, (rows, num_bytes) in enumerate(sizes)
    ]


def oracle(sizes, partition_bytes):
    """Each row's (nominal partition, group and piece where the group is large), rows in order."""
    bounds, place = [], 0
    for size in (
        [max(1, partition_bytes // 8)] * 8
        + [2 * max(1, partition_bytes // 8)] * 8
        + [4 * max(1, partition_bytes // 8)] * 8
    ):
        bounds.append(place)
        place += size
    found, position = [], 0
    for number, (num_rows, num_bytes) in enumerate(sizes):
        if position < place:
            nominal_partition = sum(bound <= position for bound in bounds) - 1
        else:
            nominal_partition = 24 + (position - place) // partition_bytes
        pieces = min(-(-num_bytes // partition_bytes), 16, num_rows)
        for row in range(num_rows):
            piece = next(i for i in range(pieces) if row < num_rows * (i + 1) // pieces)
            found.append((number, piece) if num_bytes > partition_bytes else nominal_partition)
        position += num_bytes
    return [sum(1 for _ in run) for run in _runs(found)]


def _runs(values):
    run = []
    for value in values:
        if run and run[-1] != value:
            yield run
            run = []
        run.append(value)
    if run:
        yield run


@given(sizes=sizes, partition_bytes=st.integers(8, 200))
def test_runs_are_what_the_nominal_cuts_say(sizes, partition_bytes):
    runs = cut_groups(groups_of(sizes), partition_bytes)
    assert [run.num_rows for run in runs] == oracle(sizes, partition_bytes)
    first = [sum(rows for rows, _ in sizes[: run.first_group]) + run.skip for run in runs]
    assert first == [sum(run.num_rows for run in runs[:i]) for i in range(len(runs))]


@given(sizes=sizes, partition_bytes=st.integers(8, 200), limit=st.integers(1, 60))
def test_a_limit_takes_the_first_rows_alone(sizes, partition_bytes, limit):
    whole = cut_groups(groups_of(sizes), partition_bytes)
    limited = cut_groups(groups_of(sizes), partition_bytes, limit)
    assert sum(run.num_rows for run in limited) == min(limit, sum(run.num_rows for run in whole))
    assert limited[:-1] == whole[: max(len(limited) - 1, 0)]


@given(sizes=sizes, added=sizes, partition_bytes=st.integers(8, 200))
def test_groups_that_are_appended_change_no_partition_but_the_last(sizes, added, partition_bytes):
    before = cut_groups(groups_of(sizes), partition_bytes)
    after = cut_groups(groups_of(sizes + added), partition_bytes)
    assert after[: max(len(before) - 1, 0)] == before[:-1]


def test_the_worked_example_of_the_docstring():
    found = cut_groups(groups_of([(1, 6), (1, 6), (1, 30), (9, 200)]), 80)
    assert [(run.first_group, run.num_groups, run.skip, run.num_rows) for run in found] == [
        (0, 2, 0, 2), (2, 1, 0, 1), (3, 1, 0, 3), (3, 1, 3, 3), (3, 1, 6, 3)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", WRITERS)
def test_pieces_of_one_group_have_digests_of_their_own(tmp_path, kind):
    path = tmp_path / f"rows.{kind}"
    path.write_bytes(as_parquet(ROWS, row_group_size=100) if kind == "parquet" else as_arrow(ROWS, batch_rows=100))
    pieces = partition_file(path, format=kind, partition_bytes=300).partitions
    assert len({piece.xxh3 for piece in pieces}) == len(pieces) > 4
    assert len({(piece.start, piece.stop) for piece in pieces}) == 1


@pytest.mark.parametrize("kind", WRITERS)
def test_a_column_that_is_renamed_is_another_partition(tmp_path, kind):
    found = []
    for name in ("text", "test"):
        path = tmp_path / name
        path.write_bytes(WRITERS[kind]([{name: row["text"]} for row in ROWS]))
        found += [piece.xxh3 for piece in partition_file(path, format=kind, partition_bytes=2**20).partitions]
    assert len(set(found)) == len(found) == 2
