"""A preview shows what a build then contains, reads no further than it must, and writes nothing."""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from chats import chat
from shorter_starter import shortened
from twins import byte_level
from watched_builds import Notes

from packer.audit.preview import preview
from packer.audit.view import view_row
from packer.errors import NothingKeptError, PackerError, UsageError
from packer.model import model as model_module
from packer.pipeline.from_python import RecipeKeys, build
from packer.recipe.named_options import in_python
from packer.recipe.recipe import load_recipe, make_recipe, to_json
from packer.store.cache import Cache


def write(path, *rows):
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


@pytest.fixture
def recipe_of(starter):
    """Makes a recipe for some files with the tokenizer of the starter."""

    def make(*paths, template=None, **keys):
        values = {"sources": [{"path": str(path)} for path in paths], "tokenizer": str(starter / "tokenizer"), **keys}
        if template is not None:
            file = paths[0].parent / "own.jinja"
            file.write_text(template)
            values["template"] = {"file": str(file)}
        return make_recipe(values)

    return make


def assert_preview_is_what_is_built(recipe, folder, rows):
    """Every row shown is, id for id and label for label, what the cache has of it; returns the preview.

    The cache is built if it is not there. Which parts of documents are in no block is for the build to say.
    """
    if not folder.exists():
        build(recipe, folder, jobs=1, fail_above=1)
    found = preview(recipe, rows=rows)
    with Cache.open(folder) as cache:
        for row in found.rows:
            built = view_row(cache, row.view.source, row.view.row)
            rejected = tuple(line for line in built.rejected if line.document is None)
            assert row.view == replace(built, rejected=rejected)
    return found


def listing(*folders):
    return {
        path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes())
        for folder in folders
        for path in (folder, *folder.rglob("*"))
    }


def test_what_is_shown_is_what_a_build_contains(starter, tmp_path):
    recipe = load_recipe(shortened(starter, tmp_path / "starter", 22) / "recipe.yaml")
    found = assert_preview_is_what_is_built(recipe, tmp_path / "cache", rows=1000)
    with Cache.open(tmp_path / "cache") as cache:
        totals = cache.manifest.totals
        shown = [(row.view.source, row.view.row) for row in found.rows]
        assert shown == [(entry.path, row) for entry in cache.manifest.inputs for row in range(entry.num_rows)]
        inputs = [(i.path, i.split, i.format, i.schema) for i in cache.manifest.inputs]
        assert [(i.name, i.split, i.format, i.schema) for i in found.inputs] == inputs
    own = found.totals
    assert (own.rows, own.kept, own.rejected) == (totals.rows, totals.kept, totals.rejected)
    assert (own.documents, own.tokens, own.trained) == (totals.documents, totals.tokens, totals.trained)
    assert len({run.kind for row in found.rows for each in row.view.documents for run in each.runs}) == 2


def test_rows_of_every_kind_and_fate_are_as_in_the_cache(recipe_of, tmp_path):
    flagged, fraction = chat("Hi", "Hello", "?", "Yes"), chat("?", "Yes")
    flagged["messages"][3]["weight"] = 0
    fraction["messages"][1]["weight"] = 0.25
    rows = [chat("Hi", "Hello", id="a"), "", "not json", flagged, fraction, chat("Hi"), {"messages": []}]
    rows += [chat("Hi", "x" * 5000), chat("Hi", "Hello <|im_end|>"), chat("one <|im_end|> two", "three")]
    rows += [chat("long " * 60, "answer")]
    path = write(tmp_path / "a.jsonl", *rows)
    text = write(tmp_path / "text.jsonl", {"text": "Once upon a time."})
    completion = write(tmp_path / "completion.jsonl", {"prompt": "2 + 2 =", "completion": " 4"})
    array = tmp_path / "array.json"
    array.write_text("\ufeff" + json.dumps([chat("Hi", "Hello"), 7, {"messages": 3}], indent=1))
    recipe = recipe_of(path, text, completion, array, rows={"max_bytes": 2000})
    found = assert_preview_is_what_is_built(recipe, tmp_path / "cache", rows=100)
    codes = {line.code for row in found.rows for line in row.view.rejected}
    assert codes == {"not_json", "control_token", "nothing_trained", "empty", "row_too_large", "wrong_type"}


def test_the_answers_of_a_pair_are_no_rewritten_history_however_long_the_chosen_one_is(recipe_of, tmp_path):
    asked, said = chat("Hi", "Hello, and more. " * 9)["messages"]
    row = {"prompt": [asked], "chosen": [said], "rejected": [said | {"content": "No."}]}
    notes = Notes()
    assert preview(recipe_of(write(tmp_path / "a.jsonl", row)), rows=1, progress=notes).totals.documents == 2
    assert not any("would stop" in each for each in notes.notes)


def test_nothing_is_written(starter, recipe_of, tmp_path, monkeypatch):
    recipe = recipe_of(write(tmp_path / "a.jsonl", chat("Hi", "Hello"), "not json"))
    monkeypatch.chdir(tmp_path)
    before = listing(starter, tmp_path)
    assert preview(recipe).rows
    assert preview(recipe, rejected_only=True).rows
    assert listing(starter, tmp_path) == before
    assert len(before) > 8


def test_only_the_first_rows_of_each_input_are_shown(recipe_of, tmp_path):
    paths = [
        write(tmp_path / f"{name}.jsonl", *(chat(f"{name} {i}?", f"{name} {i}!") for i in range(5))) for name in "ab"
    ]
    found = preview(recipe_of(*paths))
    assert [(row.view.source, row.view.row) for row in found.rows] == [(str(p), n) for p in paths for n in range(3)]
    assert found.totals.rows == 6
    limited = make_recipe(to_json(recipe_of(*paths)), ["sources[0].limit=2"])
    assert [row.view.row for row in preview(limited, rows=4).rows] == [0, 1, 0, 1, 2, 3]
    with pytest.raises(UsageError, match="no row 2") as caught:
        preview(limited, row=("a.jsonl", 2))
    assert "the recipe takes 2" in caught.value.hint


def test_of_a_large_file_only_the_beginning_is_read(recipe_of, tmp_path, monkeypatch):
    from packer.source import file_bytes

    path = write(tmp_path / "large.jsonl", *(chat("Hi", "Hello " * 2000) for _ in range(2000)))
    size = path.stat().st_size
    taken = 0

    def counted(*arguments):
        nonlocal taken
        for chunk in file_bytes.read_chunks(*arguments):
            taken += len(chunk)
            yield chunk

    monkeypatch.setattr("packer.source.rows.read_chunks", counted)
    # Given a schema, none is looked for. Of the first rows, a thousand are searched for text that nothing reads.
    monkeypatch.setattr("packer.pipeline.plan.inputs._SAMPLED_ROWS", 64)
    values = {"sources": [{"path": str(path), "schema": "messages"}], "tokenizer": recipe_of().tokenizer}
    assert len(preview(make_recipe(values)).rows) == 3
    # A megabyte or two each: rows that are searched, tried (twice), shown, and read for notes and labels.
    assert 0 < taken <= 8 * file_bytes.READ_BYTES < size / 2


def test_one_row_is_found_by_the_end_of_its_path_and_blank_lines_are_no_rows(recipe_of, tmp_path):
    (tmp_path / "b").mkdir()
    first = write(tmp_path / "a.jsonl", chat("Hi", "Hello"))
    second = write(tmp_path / "b" / "b.jsonl", chat("Hi", "zero"), "", "  ", chat("Hi", "one"), chat("Hi", "two"))
    recipe = recipe_of(first, second)
    (row,) = preview(recipe, row=("b.jsonl", 1)).rows
    assert row.view.documents[0].runs[-1].text == "one<|im_end|>"
    assert preview(recipe, row=(str(second), 2)).rows[0].view.row == 2
    for source, number, told in (("b.jsonl", 3, "no row 3"), ("c.jsonl", 0, "no source is"), ("jsonl", 0, "no source")):
        with pytest.raises(UsageError, match=told):
            preview(recipe, row=(source, number))


def test_rejected_rows_are_looked_for_among_the_first_thousand(recipe_of, tmp_path, monkeypatch):
    module = sys.modules["packer.audit.preview"]
    assert module.PREVIEWED == 1000
    monkeypatch.setattr(module, "PREVIEWED", 30)
    rows = [chat("Hi", "Hello") for _ in range(32)]
    rows[3] = rows[7] = rows[29] = rows[30] = "not json"
    path = write(tmp_path / "a.jsonl", *rows)
    found = preview(recipe_of(path), rejected_only=True, rows=2)
    assert [row.view.row for row in found.rows] == [3, 7]
    assert found.totals.rows == 8
    found = preview(recipe_of(path), rejected_only=True, rows=100)
    assert [row.view.row for row in found.rows] == [3, 7, 29]
    assert (found.totals.rows, found.totals.rejected) == (30, {"not_json": 3})


FORGETFUL = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' and not loop.last %}{{ m.content | upper }}{% else %}{{ m.content }}{% endif %}"
    "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Writes every answer but the last in capitals."""


def test_documents_of_rewritten_history_say_which_message_they_train(recipe_of, tmp_path):
    path = write(tmp_path / "a.jsonl", chat("a?", "a!", "b?", "b!", "c?", "c!"))
    recipe = recipe_of(path, template=FORGETFUL, supervision={"history_rewrite": "exact", "allow_dropped": ["content"]})
    found = assert_preview_is_what_is_built(recipe, tmp_path / "cache", rows=1)
    (row,) = found.rows
    trained = [[(run.message, run.text) for run in each.runs if run.message is not None] for each in row.view.documents]
    assert trained == [[(1, "a!<|im_end|>")], [(3, "b!<|im_end|>")], [(5, "c!<|im_end|>")]]


OPENING = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
)
"""A prompt that opens reasoning which no turn has."""

SILENT = (
    "{% for m in messages %}{% if m.role != 'system' %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Leaves system messages out."""

ENDLESS = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"

STRICT = "{% if messages[0].role != 'user' %}{{ raise_exception('user first') }}{% endif %}" + OPENING


def excerpts(recipe):
    (row,) = preview(recipe, rows=1).rows
    assert not row.view.documents
    (line,) = row.view.rejected
    return line.code, [(each.label, each.text, each.mark is not None) for each in row.excerpts]


def test_a_prompt_that_diverges_is_shown_with_the_turn(recipe_of, tmp_path):
    path = write(tmp_path / "a.jsonl", chat("Hi", "Hello"))
    refuses = make_recipe(to_json(recipe_of(path, template=OPENING)), ["supervision.on_prompt_mismatch=refuse"])
    code, shown = excerpts(refuses)
    both = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert code == "prompt_diverges"
    assert [text for _, text, _ in shown] == [both + "<think>\n", both + "Hello<|im_end|>\n"]
    assert [marked for _, _, marked in shown] == [True, True]


def test_other_rejected_rows_have_the_hint_of_a_build(recipe_of, tmp_path):
    rows = [{"messages": [{"role": "system", "content": "Be brief."}, *chat("Hi", "Hello")["messages"]]}, "not json"]
    hints = []
    for number, row in enumerate(rows):
        recipe = recipe_of(write(tmp_path / f"{number}.jsonl", row), template=SILENT)
        recipe = make_recipe(to_json(recipe), ["sources.schema=messages", "sources.format=jsonl"])
        with pytest.raises(NothingKeptError) as built:
            build(recipe, tmp_path / "cache", jobs=1)
        hints.append(preview(recipe).rows[0].hint)
        assert in_python(hints[-1], RecipeKeys.__annotations__) == built.value.hint
    assert "allow_dropped=[system]" in hints[0]
    assert "NaN and Infinity are not JSON" in hints[1]


INSTRUCTED = {"messages": [{"role": "system", "content": "Be brief."}, *chat("Hi", "Hello")["messages"]]}
EQUIPPED = chat("Hi", "Hello", tools=[{"type": "function", "function": {"name": "look_up", "parameters": {}}}])
ENDS = "user: Hi\nassistant: Hello\n"
RENDERED = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"


@pytest.mark.parametrize(
    ("template", "row", "code", "shown"),
    [
        (SILENT, INSTRUCTED, "dropped_system", ("the rendering up to messages[2]", RENDERED, True)),
        (SILENT, EQUIPPED, "dropped_tools", ("the rendering up to messages[1]", RENDERED, True)),
        (ENDLESS, chat("Hi", "Hello"), "no_terminator", ("the rendering up to messages[1]", ENDS, True)),
        (STRICT, INSTRUCTED, "template_error", ("its messages are from", "system, user, assistant", False)),
    ],
)
def test_a_rejected_row_is_shown_with_what_it_lacks(template, row, code, shown, recipe_of, tmp_path):
    assert excerpts(recipe_of(write(tmp_path / "a.jsonl", row), template=template)) == (code, [shown])


def test_a_row_that_cannot_be_read_is_shown_as_it_stands_cut_and_with_its_bytes_escaped(recipe_of, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json.dumps(chat("Hi", "Hello")).encode() + b"\n{\xff" + b"x" * 400 + b"\n")
    found = preview(recipe_of(path)).rows[1]
    (excerpt,) = found.excerpts
    assert found.view.rejected[0].code in {"not_json", "not_utf8"}
    assert excerpt.text == r"{\xff" + "x" * 295 + " [...]"


def test_a_row_too_large_to_be_held_has_no_excerpt(recipe_of, tmp_path):
    path = write(tmp_path / "a.jsonl", chat("Hi", "Hello" * 100))
    (row,) = preview(recipe_of(path, rows={"max_bytes": 100})).rows
    assert (row.view.rejected[0].code, row.excerpts) == ("row_too_large", ())


def test_what_a_build_refuses_a_preview_refuses_alike(recipe_of, tmp_path):
    path = write(tmp_path / "a.jsonl", chat("Hi", "Hello"))
    byte_level(tmp_path / "model")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "tokenizer.json").write_bytes((tmp_path / "model" / "tokenizer.json").read_bytes())
    (tmp_path / "link.jsonl").symlink_to(path)
    blank, none, broken, empty = (tmp_path / name for name in ("blank.jsonl", "none.json", "broken.json", "empty.json"))
    blank.write_text(" \n\n")
    none.write_text("")
    broken.write_text("[" + json.dumps(chat("Hi", "Hello")) + ", {")
    empty.write_text("[]")
    (tmp_path / "noise.jsonl").write_bytes(b"\x00\x01\x02 not text \xff\n")
    (tmp_path / "bytes").mkdir()
    write(tmp_path / "bytes" / os.fsdecode(b"a\xff.jsonl"), chat("Hi", "Hello"))
    tokenizer = recipe_of().tokenizer

    def sources(*files, tokenizer=tokenizer, **keys):
        return {"sources": [{"path": str(file), **keys} for file in files], "tokenizer": tokenizer}

    refused = [
        ({"sources": [{"path": str(tmp_path / "missing.jsonl")}]}, "no tokenizer"),
        (sources(tmp_path / "missing.jsonl"), "no such file"),
        (sources(tmp_path / "*.csv"), "no file matches"),
        (sources(tmp_path / "noise.jsonl"), "noise.jsonl"),
        (sources(path, path), "twice"),
        (sources(path, tmp_path / "link.jsonl"), "twice"),
        (sources(path, tmp_path / "bytes" / "*.jsonl"), "not UTF-8"),
        (sources(path, none), "holds no rows"),
        (sources(blank, format="jsonl", schema="messages"), "holds no rows"),
        (sources(none, format="jsonl", schema="messages"), "holds no rows"),
        (sources(none, format="json", schema="messages"), "holds no rows"),
        (sources(none, format="json"), "holds no rows"),
        (sources(empty, schema="messages"), "holds no rows"),
        (sources(broken, schema="messages"), "is not JSON"),
        (sources(blank, format="json", schema="messages"), "holds no rows"),
        (sources(path, tokenizer=str(tmp_path / "missing")), "no such file or folder"),
        (sources(path, tokenizer=str(tmp_path / "bytes")), "no tokenizer.json"),
        (sources(path, tokenizer=str(tmp_path / "bare")), "need a chat template"),
        (sources(broken, schema="messages", tokenizer=str(tmp_path / "bare")), "need a chat template"),
    ]
    for values, told in refused:
        recipe = make_recipe(values)
        with pytest.raises(PackerError, match=told) as built:
            build(recipe, tmp_path / "cache", jobs=1)
        with pytest.raises(PackerError, match=told) as previewed:
            preview(recipe)
        assert facts(previewed.value) == facts(built.value) and built.value.hint
    assert not (tmp_path / "cache").exists()


def facts(error):
    return type(error), error.message, in_python(error.hint or "", RecipeKeys.__annotations__)


def test_rows_of_which_no_text_can_be_encoded_are_left_out(starter, tmp_path, monkeypatch):
    """Where the tokenizer fails on every text, so that a batch has no token at all."""
    folder = Path(shutil.copytree(starter / "tokenizer", tmp_path / "tokenizer"))
    definition = json.loads((folder / "tokenizer.json").read_bytes())
    definition["pre_tokenizer"] = {"type": "FixedLength", "length": 0}
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    monkeypatch.setattr(model_module, "_PROBE", "")  # or it would be refused when it is loaded
    recipe = load_recipe(starter / "recipe.yaml", [f"tokenizer={folder}", "engine=reference", "sources.limit=9"])
    assert {line.code for row in preview(recipe, rows=2).rows for line in row.view.rejected} == {"not_encodable"}


def test_of_a_mangled_text_the_rendering_is_shown(recipe_of, tmp_path):
    """The hint of the rejection says so."""
    escaping = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + (m.content | replace('<', '&lt;')) + '<|im_end|>\\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )
    (row,) = preview(recipe_of(write(tmp_path / "a.jsonl", chat("a < b?", "a < b!")), template=escaping)).rows
    assert [line.code for line in row.view.rejected] == ["mangled_text"]
    (excerpt,) = row.excerpts
    assert "a &lt; b" in excerpt.text and excerpt.mark
    assert row.hint is not None and row.hint.startswith("packer preview shows what the template writes")
