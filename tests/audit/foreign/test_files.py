"""Other forms than save_to_disk, and files that are not what they say: an error with a name, never a traceback."""

import functools
import gzip
import json
import os
import random
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from packer.audit.foreign import look_at, view_foreign_row
from packer.audit.foreign.tokenizer_facts import find_known
from packer.errors import InputError, UsageError
from packer.export import FORMATS, export
from packer.pipeline.repacking import repack


@pytest.fixture(scope="module", autouse=True)
def known_once():
    """Tokenizer and template are asked once for all of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("packer.audit.foreign.foreign_report.find_known", functools.cache(find_known))
        yield


FORMS = {"datasets": "train", "megatron": "train_text_document", "olmo": "train", "mds": "train"}


@pytest.fixture(scope="module", params=FORMS)
def exported(request, starter_cache, tmp_path_factory):
    """A folder in some form, and what in it an audit is pointed at."""
    folder = tmp_path_factory.mktemp("exported") / "out"
    export(starter_cache, folder, to=request.param, separate_mask=request.param == "megatron")
    return folder, FORMS[request.param]


@pytest.mark.parametrize(
    ("to", "mask"), [("olmo", "train/labels_mask_part_0000.npy"), ("megatron", "train_loss_mask_document.bin")]
)
def test_defects_in_a_mask_beside_the_tokens_are_found(starter_cache, starter, tmp_path, to, mask):
    folder = tmp_path / "out"
    export(starter_cache, folder, to=to, separate_mask=to == "megatron")
    name = next(folder.rglob("*token_ids*.npy" if to == "olmo" else "train_text_document.bin"))
    ids = np.fromfile(name, np.uint16)
    values = np.fromfile(folder / mask, np.uint8)
    trained = values != 0
    stops = np.flatnonzero((ids == 4091) & trained)
    values[stops[[3, 8, 20]]] = 0
    values.tofile(folder / mask)
    report = look_at(folder / FORMS[to], tokenizer=starter / "tokenizer", sample=None)
    assert [(finding.code, finding.count) for finding in report.findings] == [("terminator_masked", 3)]
    assert report.labels_from.startswith("loss_mask")


def test_tokens_without_a_mask_are_said_to_be_all_trained(starter_cache, starter, tmp_path):
    export(starter_cache, tmp_path / "meg", to="megatron", separate_mask=True)
    (tmp_path / "meg/train_loss_mask_document.idx").unlink()
    report = look_at(tmp_path / "meg/train_text_document.bin", tokenizer=starter / "tokenizer", sample=None)
    assert "GPTDataset trains every token" in report.labels_from
    assert report.findings[0].code == "prompt_trained"


CACHES = {"isolated": None, "eos": {"mode": "eos", "block_len": 512}, "stream": {"mode": "stream", "block_len": 128}}
CASES = [
    (mode, to, unit)
    for mode in CACHES
    for to, entry in FORMATS.items()
    for unit in entry.units
    if (unit == "blocks" or mode == "isolated") and (mode, to, unit) != ("isolated", "olmo", "blocks")  # refused
]


@pytest.fixture(scope="module")
def caches(starter_cache, tmp_path_factory):
    """The starter's documents in blocks of every mode."""
    made = {}
    for mode, changes in CACHES.items():
        made[mode] = starter_cache if changes is None else tmp_path_factory.mktemp("repacked") / "cache"
        if changes is not None:
            repack(starter_cache, made[mode], changes, (), jobs=1)
    return made


@pytest.mark.parametrize(("mode", "to", "unit"), CASES)
def test_whatever_export_writes_is_taken_as_a_folder_and_has_no_finding(caches, starter, tmp_path, mode, to, unit):
    out = export(caches[mode], tmp_path / "out", to=to, unit=unit, separate_mask=to == "megatron")
    with_tokenizer, without = (
        look_at(out.folder, tokenizer=named, sample=None) for named in (starter / "tokenizer", None)
    )
    # Blocks of one stream are cut where a block is full, and that is said.
    cut = {("no_terminator", "warning"), ("beginning_cut", "warning")} if mode == "stream" else set()
    assert {(finding.code, finding.level) for finding in with_tokenizer.findings} == cut
    assert without.findings == ()
    for report in (with_tokenizer, without):
        assert report.trained == sum(split.num_trained for split in out.splits) > 0
        assert report.num_tokens == report.tokens_looked_at == sum(split.num_tokens for split in out.splits)
        assert report.num_rows == report.rows_looked_at == sum(split.num_rows for split in out.splits)


def test_there_are_cases_for_every_form_and_unit():
    assert {(to, unit) for _, to, unit in CASES} == {
        (to, unit) for to, entry in FORMATS.items() for unit in entry.units
    }


def test_all_pairs_of_a_folder_are_its_parts(starter_cache, starter, tmp_path):
    folder = tmp_path / "meg"
    export(starter_cache, folder, to="megatron", split="train", separate_mask=True)
    found = look_at(folder, tokenizer=starter / "tokenizer", sample=3)
    named = look_at(folder / "train_text_document", tokenizer=starter / "tokenizer", sample=3)
    assert (found.form, found.num_tokens, found.columns) == ("megatron", named.num_tokens, named.columns)
    assert found.columns == ("input_ids", "loss_mask")
    for ending in ("bin", "idx"):
        shutil.copy(folder / f"train_text_document.{ending}", folder / f"more_text_document.{ending}")
    both = look_at(folder, tokenizer=starter / "tokenizer", sample=None)
    assert (both.num_rows, both.num_tokens) == (2 * found.num_rows, 2 * found.num_tokens)
    assert view_foreign_row(folder, 0, part="more_text_document").part == "more_text_document"


def test_an_index_may_have_modes_of_its_sequences_and_documents_of_several(starter_cache, tmp_path):
    export(starter_cache, tmp_path / "out", to="megatron", split="train", separate_mask=True)
    before = look_at(tmp_path / "out", sample=None)
    for index in (tmp_path / "out").glob("*.idx"):
        content = bytearray(index.read_bytes())
        count = int.from_bytes(content[18:26], "little")
        documents = np.array([*range(0, count, 2), count], np.int64)
        content[26:34] = len(documents).to_bytes(8, "little")
        content[34 + 12 * count :] = documents.tobytes() + bytes(count)
        index.write_bytes(content)
    after = look_at(tmp_path / "out", sample=None)
    assert (after.num_rows, after.trained, after.num_tokens) == (count, before.trained, before.num_tokens)


def test_an_array_alone_needs_a_tokenizer_for_its_type_and_borders(starter_cache, starter, tmp_path):
    export(starter_cache, tmp_path / "out", to="olmo", split="train")
    path = tmp_path / "out/train/token_ids_part_0000.npy"
    path.with_suffix(".csv.gz").unlink()
    (tmp_path / "out/export.json").unlink()
    with pytest.raises(InputError, match="EOS"):
        look_at(path)
    (path.parent / "labels_mask_part_0000.npy").unlink()
    with pytest.raises(InputError, match="type of its ids"):
        look_at(path)
    ids = np.fromfile(path, np.uint16)
    report = look_at(path, tokenizer=starter / "tokenizer", sample=None)
    assert report.num_tokens == len(ids)
    assert report.num_rows == int((ids == 4091).sum()) + (ids[-1] != 4091)
    # Its template ends questions with EOS too, so a row is a message, and no prompt can be told from an answer.
    assert report.findings == ()
    assert "which this template writes behind questions too" in report.not_looked_at[0].why


def test_arrays_are_read_bare_with_a_header_and_with_two_axes(starter, tmp_path):
    ids = np.arange(700, 700 + 30, dtype=np.uint16)
    ids[[9, 19]] = 4091
    ids.tofile(tmp_path / "train.bin")
    np.save(tmp_path / "header.npy", ids.astype(np.int64))
    np.save(tmp_path / "rows.npy", ids.reshape(5, 6))
    np.save(tmp_path / "float.npy", ids.astype(np.float32))
    for name, num_rows in (("train.bin", 3), ("header.npy", 3), ("rows.npy", 5)):
        report = look_at(tmp_path / name, tokenizer=starter / "tokenizer")
        assert (report.num_rows, report.num_tokens, report.tokens_looked_at) == (num_rows, 30, 30)
    assert look_at(tmp_path / "rows.npy").num_rows == 5, "its type and its rows stand in its header"
    with pytest.raises(InputError, match=r"expected whole numbers in one axis or two, found float32"):
        look_at(tmp_path / "float.npy")


@pytest.mark.parametrize("kind", ["parquet", "arrow stream", "arrow file", "folder of parquet", "splits of any name"])
def test_rows_of_files_are_those_of_the_folder_they_were_in(starter_cache, starter, tmp_path, kind):
    export(starter_cache, tmp_path / "out", to="datasets", split="train")
    (stream,) = (tmp_path / "out").glob("*.arrow")
    table = pa.ipc.open_stream(stream).read_all()
    place = tmp_path / ("rows.parquet" if kind == "parquet" else "rows.arrow")
    if kind == "parquet":
        pq.write_table(table, place, row_group_size=7)
    elif kind == "arrow stream":
        place.write_bytes(stream.read_bytes())
    elif kind == "arrow file":
        with pa.ipc.new_file(place, table.schema) as writer:
            writer.write_table(table)
    elif kind == "folder of parquet":
        place = tmp_path / "folder"
        (place / "data").mkdir(parents=True)
        for number, start in enumerate(range(0, len(table), 40)):
            pq.write_table(table.slice(start, 40), place / f"data/train-{number}.parquet")
    else:
        place = tmp_path / "dict"
        shutil.copytree(tmp_path / "out", place / "train-sft")
        (place / "dataset_dict.json").write_text('{"splits": ["train-sft"]}')
    whole = look_at(tmp_path / "out", tokenizer=starter / "tokenizer", sample=None)
    found = look_at(place, tokenizer=starter / "tokenizer", sample=None)
    assert (found.num_rows, found.num_tokens, found.trained, found.findings) == (
        len(table), whole.num_tokens, whole.trained, (),
    )  # fmt: skip
    some = look_at(place, sample=5)
    assert some.rows_looked_at == 5 and some.columns == tuple(table.column_names)


def test_a_mask_of_weights_trains_what_has_one(tmp_path):
    pq.write_table(pa.table({"input_ids": [[5, 6, 7]], "loss_mask": [[0.0, 0.5, 1.0]]}), tmp_path / "rows.parquet")
    assert look_at(tmp_path / "rows.parquet").trained == 2


def test_a_split_outside_of_its_folder_and_a_parquet_file_that_is_none_are_refused(tmp_path):
    for split in ("../other", "a\0b"):
        (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": [split]}))
        with pytest.raises(InputError, match="no name of a folder within it"):
            look_at(tmp_path)
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"rows\.parquet cannot be read"):
        look_at(tmp_path / "rows.parquet")


def test_damaged_files_are_an_input_error_or_rows_as_they_are(exported, starter, tmp_path):
    folder, path = exported
    random_ = random.Random(5)
    files = sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file() and "train" in str(p))
    refused = read = 0
    for number in range(24):
        copy = tmp_path / str(number)
        shutil.copytree(folder, copy)
        victim = copy / files[number % len(files)]
        content = bytearray(victim.read_bytes())
        if number % 3 == 0:
            content = content[: random_.randrange(len(content))]
        else:
            for _ in range(random_.randrange(1, 30)):
                content[random_.randrange(min(len(content), 4000))] ^= 1 << random_.randrange(8)
        victim.write_bytes(content)
        try:
            look_at(copy / path, tokenizer=starter / "tokenizer", sample=20)
            read += 1
        except InputError as error:
            refused += 1
            assert str(copy) in error.message
        shutil.rmtree(copy)
    assert refused + read == 24 and refused > 3


def test_columns_that_are_no_lists_of_numbers_are_refused(tmp_path):
    for number, (column, words) in enumerate(
        [
            (pa.array(["text", "text"]), "lists of numbers"),
            (pa.array([[1.5], [2.0]]), "expected whole numbers"),
            (pa.array([[1], None]), "null"),
            (pa.array([[1, None], [2]]), "null"),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        table = pa.table({"input_ids": column})
        with pa.ipc.new_stream(folder / "data.arrow", table.schema) as writer:
            writer.write_table(table)
        (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
        with pytest.raises(InputError, match=words):
            look_at(folder)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "../../etc/passwd"}]}))
    with pytest.raises(InputError, match=r"Expected the name of a file: .*_data_files\[0\]\.filename"):
        look_at(folder)


def test_a_row_is_shown_as_it_is_trained(exported, starter):
    folder, path = exported
    view = view_foreign_row(folder / path, 0, tokenizer=starter / "tokenizer", with_ids=True)
    assert view.num_trained == sum(run.num_tokens for run in view.runs if run.kind == "trained") > 0
    assert sum(len(run.input_ids) for run in view.runs) == view.length
    with pytest.raises(UsageError, match="no row"):
        view_foreign_row(folder / path, 10**6)
    with pytest.raises(UsageError, match="no part"):
        view_foreign_row(folder / path, 0, part="nowhere")


def a_pair(folder, *, code=8, count=2, lengths=(3, 1), pointers=(0, 6), size=None):
    """A pair of Megatron's files with 4 ids of two bytes each, by the values of its index."""
    head = b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + bytes([code]) + count.to_bytes(8, "little") + bytes(8)
    index = folder / "rows.idx"
    index.write_bytes(head + np.array(lengths, "<i4").tobytes() + np.array(pointers, "<i8").tobytes())
    np.arange(4, dtype=np.uint16).tofile(folder / "rows.bin")
    if size is not None:
        os.truncate(index, size)
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pointers": (0, 2**63 - 1), "code": 1}, "its sequences lie outside the .bin file, which has 8 bytes"),
        ({"pointers": (0, 2**63 - 2)}, "its sequences lie outside"),
        ({"pointers": (0, -2)}, "its sequences lie outside"),
        ({"pointers": (0, 8)}, "its sequences lie outside"),
        ({"pointers": (0, 5)}, "its sequences lie outside"),
        ({"lengths": (-1, 1)}, "its sequences lie outside"),
        ({"count": 2**64 - 1}, "expected 18446744073709551615 sequences and 0 documents, found 58 bytes"),
        ({"count": 3 * 10**9, "size": 40 * 2**30}, "found 3000000000 for a .bin file of 8 bytes"),
    ],
)
def test_an_index_that_leads_out_of_its_file_is_refused(tmp_path, changes, words):
    assert look_at(a_pair(tmp_path), sample=None).num_tokens == 4
    with pytest.raises(InputError, match=f"rows.idx: .*{words}"):
        look_at(a_pair(tmp_path, **changes), sample=None)


def test_of_an_index_with_a_large_hole_behind_it_what_it_counts_is_read(tmp_path):
    assert look_at(a_pair(tmp_path, size=40 * 2**30), sample=None).num_rows == 2


def a_record(**told):
    values = {"sequence_length": 4, "eos_id": 2} | told
    return {
        "splits": {"rows": {"sequence_length": values["sequence_length"]}}, "model": {"eos_id": values["eos_id"]}
    }  # fmt: skip


def a_header(text):
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode() + bytes(64)


def a_shape(shape):
    return a_header(f"{{'descr': '<i4', 'fortran_order': False, 'shape': {shape}}}\n")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("rows/ids.csv.gz", gzip.compress(b"0,99999999999999999999,a\n", mtime=0), r"ids\.csv\.gz cannot be read"),
        ("rows/ids.csv.gz", gzip.compress(b"0,9,a\n", mtime=0), r"ids\.csv\.gz names places outside"),
        *(
            ("export.json", json.dumps(a_record(**{name: value})).encode(), f"export.json: expected {name} to be a n")
            for name, values in {"sequence_length": ("x", 2**70, -1, True, []), "eos_id": ([], -1, 2**70)}.items()
            for value in values
        ),
        *(
            ("rows/ids.npy", content, r"ids\.npy(:| cannot be read)")
            for content in (
                *map(a_shape, (f"({2**63},)", f"({2**62},)", "(True,)", "(-5,)", f"({2**62}, 0)")),
                *map(a_header, ("(((", "{'descr': '<04'}", "-" * 9000 + "1", "1+" * 4000 + "1j", "")),
            )
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "content",
)
def test_arrays_with_a_file_beside_them_or_a_header_that_is_none_are_refused(tmp_path, name, content, words):
    (tmp_path / "rows").mkdir()
    (tmp_path / "export.json").write_text(json.dumps(a_record()))
    np.save(tmp_path / "rows/ids.npy", np.arange(8))
    assert look_at(tmp_path / "rows", sample=None).num_rows == 2
    (tmp_path / name).write_bytes(content)
    if name.endswith(".csv.gz"):
        (tmp_path / "export.json").unlink()
    with pytest.raises(InputError, match=words):
        look_at(tmp_path / "rows", sample=None)


def write_table(table, place):
    if place.suffix == ".parquet":
        pq.write_table(table, place)
    else:
        with pa.ipc.new_stream(place, table.schema) as writer:
            writer.write_table(table)
    return place


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("name", ["input_ids", "labels", "seq_lengths"])
def test_of_two_columns_of_one_name_none_is_read(tmp_path, ending, name):
    columns = [pa.array([[1, 2], [3]])] * 4
    table = pa.Table.from_arrays(columns, names=["input_ids", "text", "text", name])
    if name == "input_ids":
        place = write_table(table.select([0, 1, 2]), tmp_path / f"fine.{ending}")
        assert look_at(place, sample=None).columns == ("input_ids", "text")
    else:
        table = table.append_column(name, columns[0])
    with pytest.raises(InputError, match=rf"rows\.{ending} has 2 columns named {name}"):
        look_at(write_table(table, tmp_path / f"rows.{ending}"), sample=None)


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_text_that_is_not_utf_8_in_a_column_that_is_not_read_is_no_matter(tmp_path, ending):
    offsets, content = (pa.py_buffer(data) for data in (np.array([0, 2, 3], np.int32).tobytes(), b"\xff\xfea"))
    text = pa.Array.from_buffers(pa.string(), 2, [None, offsets, content])
    table = pa.table({"text": text, "input_ids": [[1, 2], [3]]})
    report = look_at(write_table(table, tmp_path / f"rows.{ending}"), sample=None)
    assert (report.num_tokens or report.tokens_looked_at, report.columns) == (3, ("text", "input_ids"))


@pytest.mark.parametrize(
    "lengths",
    [[2**63 - 1, 2**63 - 1, 5], [-(2**63), -(2**63), 3], [4, -1], [-1, 4], [2**63 - 1], [3, 2**63 - 1], [0, 3], [4]],
)
def test_lengths_whose_sum_only_wraps_round_to_that_of_their_row_disagree_with_it(tmp_path, lengths):
    rows = [[5, 6, 7], [8], [9, 9]]
    table = pa.table({"input_ids": rows, "seq_lengths": pa.array([lengths, [1], [1, 1]], pa.list_(pa.int64()))})
    report = look_at(write_table(table, tmp_path / "rows.arrow"), sample=None)
    assert [f.num_rows for f in report.findings if f.code == "borders_disagree"] == [1]
    assert report.num_sequences == 4


def test_a_path_with_a_nul_in_it_is_an_input_error(tmp_path):
    for path in (f"{tmp_path}/a\0b", "\0", f"{tmp_path}/\0.parquet"):
        with pytest.raises(InputError, match=r"a path cannot hold a NUL character"):
            look_at(path)
        with pytest.raises(InputError, match=r"a path cannot hold a NUL character"):
            view_foreign_row(path, 0)
