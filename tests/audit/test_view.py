"""Views: what is read is what was written, whole characters, with the row it comes from."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from chats import chat
from flipped_bits import flip
from packed_again import packed_again
from single_documents import read_document
from twins import byte_level, metaspace_first, sentencepiece_like

from packer.audit.token_texts import TokenTexts, make_runs
from packer.audit.view import view_block, view_document, view_row
from packer.errors import CheckError, UsageError
from packer.layout import MASKED
from packer.model.backend import load_backend
from packer.model.model import TOKENIZER_FILE, load_model
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe
from packer.store.cache import Cache
from packer.store.manifest import read_manifest

TEXTS = (
    "Grüße, 世界! 👩‍👩‍👧‍👦 ok",
    "日本語のテキスト、そして 🎉🎊",
    "한국어 🇰🇷 test",
    "سلام دنیا",
    "a\n\nb\t c",
    "𝔘𝔫𝔦 é ñ",
    "",
)


@pytest.fixture
def opened(starter_cache):
    with Cache.open(starter_cache) as cache:
        yield cache


@pytest.fixture(scope="module")
def built(starter):
    """Builds a cache of files in a folder, with the starter's tokenizer."""

    def make(folder, files, **keys):
        for name, rows in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        sources = [{"path": str(folder / name).replace("[", "[[]")} for name in files]
        recipe = make_recipe({"sources": sources, "tokenizer": str(starter / "tokenizer"), **keys})
        build(recipe, folder / "cache", jobs=1)
        return folder / "cache"

    return make


@pytest.fixture(scope="module")
def worldly(built, tmp_path_factory):
    """A cache of rows in many scripts."""
    rows = [chat(f"{text}?", f"{text}!", id=f"r{i}") for i, text in enumerate(TEXTS)]
    return built(tmp_path_factory.mktemp("worldly"), {"rows [1].jsonl": rows}, pack={"block_len": 256})


MODES = [
    {"mode": "isolated", "block_len": 512},
    {"mode": "isolated", "align": 16, "block_len": 400},
    {"mode": "isolated", "overlong": "split", "block_len": 64},
    {"mode": "isolated", "overlong": "truncate_right", "block_len": 64},
    {"mode": "stream", "block_len": 64},
]


@pytest.mark.parametrize("pack", MODES, ids=lambda pack: "-".join(map(str, pack.values())))
def test_a_block_of_any_mode_shows_every_slot_once_in_order(pack, starter_cache, tmp_path):
    packed_again(starter_cache, tmp_path / "again", pack)
    kinds, num_pieces = set(), 0
    with Cache.open(tmp_path / "again") as cache:
        blocks = cache.blocks("eval")
        for index in range(len(blocks)):
            view = view_block(cache, "eval", index)
            batch = blocks.read(np.array([index]))
            runs = []
            for document in view.documents:
                runs += [*document.runs, document.behind] if document.behind else document.runs
                num_pieces += document.length < document.document_length
            runs += [view.padding] if view.padding else []
            ids = [token for run in runs for token in run.input_ids]
            labels = [token if run.kind == "trained" else MASKED for run in runs for token in run.input_ids]
            assert ids == batch.input_ids[0].tolist()
            assert labels == batch.labels[0].tolist()
            kinds |= {run.kind for run in runs} | {f"{d.behind.kind} behind" for d in view.documents if d.behind}
    assert kinds >= {"trained", "masked", "padding"}
    assert ("padding behind" in kinds) == ("align" in pack)
    assert (num_pieces > 0) == (pack["block_len"] == 64)


def test_a_document_reads_as_the_template_wrote_it(worldly):
    with Cache.open(worldly) as cache:
        for row, text in enumerate(TEXTS):
            found = view_row(cache, "rows [1].jsonl", row)
            (document,) = found.documents
            prompt = f"<|im_start|>user\n{text}?<|im_end|>\n<|im_start|>assistant\n"
            runs = [(run.kind, run.text) for run in document.runs]
            assert runs == [("masked", prompt), ("trained", f"{text}!<|im_end|>")]
            assert (document.row, document.sample_id) == (row, f"r{row}")
            assert document.source.endswith("rows [1].jsonl")
            assert view_document(cache, document.doc_id) == document


def test_documents_in_a_block_read_as_they_do_alone(opened):
    view = view_block(opened, "train", 0)
    assert view.documents
    for document in view.documents:
        assert view_document(opened, document.doc_id, split="train") == document


_LOADED = {}


def _loaded(twin, tmp_path_factory):
    if twin not in _LOADED:
        model = load_model(twin(tmp_path_factory.mktemp("twin") / "model"))
        _LOADED[twin] = TokenTexts(model), load_backend(model.files[TOKENIZER_FILE])
    return _LOADED[twin]


def trained_run(texts, ids):
    """The one run of a document whose tokens are all trained."""
    (run,) = make_runs(texts, ids, ids, np.zeros(len(ids), np.int32), messages=[None])
    return run


@pytest.mark.parametrize("twin", [byte_level, sentencepiece_like, metaspace_first])
def test_a_piece_that_ends_within_a_character_shows_all_characters_before_it(twin, tmp_path_factory):
    """With byte fallback, one byte that is missing hides every character beside it."""
    texts, tokenizer = _loaded(twin, tmp_path_factory)
    text = "x🏴🏴🏴y"
    ids = np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.int32)
    beginnings = {place: tokenizer.decode(ids[:place].tolist()) for place in range(1, len(ids))}
    flags = [place for place, shown in beginnings.items() if shown.endswith("\N{REPLACEMENT CHARACTER}")]
    assert len(flags) >= 9
    for end in flags:
        run = trained_run(texts, ids[:end])
        whole = run.text.removesuffix("\N{REPLACEMENT CHARACTER}")
        assert run.text != whole and text.startswith(whole.strip()) and "\N{REPLACEMENT CHARACTER}" not in whole


@pytest.mark.parametrize("twin", [byte_level, sentencepiece_like, metaspace_first])
def test_a_piece_that_ends_with_the_replacement_character_of_its_text_shows_it_once(twin, tmp_path_factory):
    texts, tokenizer = _loaded(twin, tmp_path_factory)
    text = "x\N{REPLACEMENT CHARACTER}y"
    ids = np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.int32)
    run = trained_run(texts, ids[:-1])
    assert run.text.strip() == "x\N{REPLACEMENT CHARACTER}"


def test_trained_runs_are_the_spans_of_the_document(opened):
    documents = 0
    for split in ("train", "eval"):
        shards = opened.documents(split)
        for index in range(len(shards)):
            document = read_document(shards, index)
            view = view_document(opened, document.doc_id, split=split)
            runs = [run for run in view.runs if run.kind == "trained"]
            trained = [(run.message, run.start, run.start + run.num_tokens) for run in runs]
            columns = (document.span_message, document.span_start, document.span_end)
            assert trained == list(zip(*(column.tolist() for column in columns), strict=True))
            documents += 1
    assert documents == 197


BARE = "{% for m in messages %}{% if loop.index != 3 %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
"""A template without headers, which leaves out a message: the turns before and behind it touch."""


def test_trained_runs_that_touch_are_two(built, tmp_path):
    row = chat("Hi", "Hello", "-", "there", "!")
    (tmp_path / "bare.jinja").write_text(BARE)
    rules = {"template": {"file": str(tmp_path / "bare.jinja")}, "supervision": {"allow_dropped": ["user"]}}
    with Cache.open(built(tmp_path, {"a.jsonl": [row]}, **rules)) as cache:
        (alone,) = view_row(cache, "a.jsonl", 0).documents
        (in_block,) = view_block(cache, "train", 0).documents
    assert [(run.kind, run.text, run.message) for run in alone.runs] == [
        ("masked", "Hi<|im_end|>", None),
        ("trained", "Hello<|im_end|>", 1),
        ("trained", "there<|im_end|>", 3),
    ]
    assert in_block == alone


NUMBERLESS = [
    ({"text": "Once upon a time"}, [None]),
    ({"prompt": "Once", "completion": " upon a time"}, [None]),
    ({"prompt": chat("Once", "upon")["messages"][:1], "completion": chat("Once", "upon")["messages"][1:]}, [1]),
    ({"instruction": "Once", "output": "upon a time"}, [1]),
]


def test_rows_without_messages_have_no_message_numbers(built, tmp_path):
    files = {f"{number}.jsonl": [row] for number, (row, _) in enumerate(NUMBERLESS)}
    with Cache.open(built(tmp_path, files)) as cache:
        for number, (_, messages) in enumerate(NUMBERLESS):
            (document,) = view_row(cache, f"{number}.jsonl", 0).documents
            assert [run.message for run in document.runs if run.kind == "trained"] == messages


def test_every_row_of_every_input_is_found_or_says_why_not(opened, starter):
    lines = [json.loads(line) for line in (opened.folder / "rejected.jsonl").read_text().splitlines()]
    rejected = {(line["source"], line["row"]): line["code"] for line in lines}
    rows = 0
    for entry in opened.manifest.inputs:
        for row in range(entry.num_rows):
            view = view_row(opened, entry.path, row)
            assert bool(view.documents) == ((entry.path, row) not in rejected)
            assert [line.code for line in view.rejected] == ([rejected[entry.path, row]] if not view.documents else [])
            assert all((document.source, document.row) == (entry.path, row) for document in view.documents)
            rows += 1
    assert rows == 200


def test_what_is_not_there_is_a_usage_error_with_the_range(opened):
    with pytest.raises(UsageError, match="no block 9999") as caught:
        view_block(opened, "train", 9999)
    assert "0 to" in caught.value.hint
    for wrong in ({"source": "nowhere.jsonl", "row": 0}, {"source": "chat.jsonl", "row": 92}):
        with pytest.raises(UsageError):
            view_row(opened, **wrong)
    with pytest.raises(UsageError, match="no document 1 "):
        view_document(opened, 1)
    with pytest.raises(UsageError, match="split 'test'"):
        view_block(opened, "test", 0)


def test_an_ambiguous_file_name_is_asked_back(built, tmp_path):
    files = {f"{folder}/rows.jsonl": [chat("Hi", "Hello")] for folder in ("a", "b", "c\\d")}
    with Cache.open(built(tmp_path, files)) as cache:
        with pytest.raises(UsageError, match="several inputs"):
            view_row(cache, "rows.jsonl", 0)
        for named in ("b/rows.jsonl", "./c\\d/rows.jsonl"):
            assert view_row(cache, named, 0).documents


def test_a_damaged_block_or_tokenizer_is_not_shown(starter_cache, tmp_path):
    folder = Path(shutil.copytree(starter_cache, tmp_path / "cache"))
    shard = next(shard for shard in read_manifest(folder).shards if shard.kind == "blocks")
    flip(folder / shard.path, shard.places[0].columns["input_ids"])
    with Cache.open(folder) as cache, pytest.raises(CheckError, match="row 0"):
        view_block(cache, shard.split, 0)
    with Cache.open(folder) as cache:
        kept = next(file for file in cache.manifest.model.files if file.path.endswith("/tokenizer.json"))
        text = (folder / "model" / kept.path).read_text()
        (folder / "model" / kept.path).write_text(text.replace("a", "b", 1))
        with pytest.raises(CheckError, match=r"tokenizer\.json is damaged"):
            view_block(cache, shard.split, 1)
