"""What a build may do to the cache that is there without a word, and what it asks for."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from watched_builds import Notes

from packer.errors import UsageError
from packer.pipeline.from_python import build
from packer.pipeline.identity import Provenance
from packer.pipeline.messages.changes import changes
from packer.recipe.recipe import make_recipe, to_json
from packer.store.manifest import Input, read_manifest


@pytest.fixture
def rows(starter, tmp_path, monkeypatch):
    """Days of rows in the current folder."""
    lines = (starter / "data" / "chat.jsonl").read_bytes().splitlines(keepends=True)[:9]
    for number in range(3):
        (tmp_path / f"day{number}.jsonl").write_bytes(b"".join(lines[3 * number : 3 * number + 3]))
    shutil.copytree(starter / "tokenizer", tmp_path / "tokenizer")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def one(*sources, overrides=(), **options):
    entries = [source if isinstance(source, dict) else {"path": source} for source in sources]
    recipe = make_recipe({"sources": entries, "tokenizer": "tokenizer"}, overrides)
    return build(recipe, "cache", jobs=1, **options)


def refused(*sources, **options):
    """What a build is refused with, which a dry run says alike."""
    before, told = Path("cache/manifest.json").read_bytes(), set()
    for is_dry in (True, False):
        with pytest.raises(UsageError) as caught:
            one(*sources, dry_run=is_dry, **options)
        assert "force=True" in caught.value.hint
        told.add(caught.value.message)
    assert Path("cache/manifest.json").read_bytes() == before
    (message,) = told
    return message


def test_files_are_added_changed_renamed_and_taken_out_freely(rows):
    first = one("day0.jsonl")
    assert one("day0.jsonl", "day1.jsonl").num_partitions_reused == first.num_partitions_built == 1
    with (rows / "day0.jsonl").open("ab") as file:
        file.write((rows / "day2.jsonl").read_bytes())
    assert one("day0.jsonl").built  # one of them leaves, the other has changed
    assert one("day*.jsonl").built
    (rows / "elsewhere").mkdir()
    for path in sorted(rows.glob("day*.jsonl")):
        path.rename(rows / "elsewhere" / path.name)
    moved = one("elsewhere/*.jsonl")
    assert moved.built and moved.num_partitions_built == 0
    assert {entry.path for entry in moved.manifest.inputs} == {f"elsewhere/day{number}.jsonl" for number in range(3)}
    content = (rows / "elsewhere" / "day0.jsonl").read_bytes()
    (rows / "elsewhere" / "day0.jsonl").write_bytes(content.splitlines(keepends=True)[-1])
    assert one({"path": "elsewhere/day0.jsonl", "schema": "messages"}).built, "a name is enough, and auto was messages"


def test_a_build_that_keeps_no_input_asks(rows):
    one("day0.jsonl", "day1.jsonl")
    assert refused("day2.jsonl") == "cache would lose inputs (2 of 2): day0.jsonl, day1.jsonl"
    forced = one("day2.jsonl", force=True, dry_run=True)
    assert forced.replaced.sentences() == ["would lose inputs (2 of 2): day0.jsonl, day1.jsonl"]
    assert forced.replaced.need_force and not forced.built
    assert one("day2.jsonl", force=True).manifest.totals.rows == 3
    assert "day2.jsonl" in refused("day0.jsonl", "day1.jsonl", overrides=["pack.block_len=512"])


def test_a_pattern_that_is_named_again_is_kept_whatever_its_files_are(rows):
    (rows / "data").mkdir()
    (rows / "data" / "a.jsonl").write_bytes((rows / "day0.jsonl").read_bytes())
    one("data/*.jsonl")
    (rows / "data" / "a.jsonl").unlink()
    (rows / "data" / "b.jsonl").write_bytes((rows / "day1.jsonl").read_bytes())
    assert refused("data/b.jsonl") == "cache would lose inputs (1 of 1): data/a.jsonl"
    assert "sources[data/*.jsonl].limit was null, is 1" in refused({"path": "data/*.jsonl", "limit": 1})
    assert one("data/*.jsonl", dry_run=True).replaced.sentences() == ["would lose inputs (1 of 1): data/a.jsonl"]
    assert one("data/*.jsonl").built


def test_inputs_that_leave_are_reported(rows):
    one("day0.jsonl", "day1.jsonl", "day2.jsonl")
    dry = one("day1.jsonl", dry_run=True)
    told = "would lose inputs (2 of 3): day0.jsonl, day2.jsonl"
    assert dry.replaced.sentences() == [told] and not dry.replaced.need_force
    notes = Notes()
    one("day1.jsonl", progress=notes)
    assert f"cache {told}" in notes.notes
    assert one("day1.jsonl", "day2.jsonl", dry_run=True).replaced.sentences() == []
    one("day1.jsonl", "day2.jsonl")
    assert "; and it would lose inputs (1 of 2): day2.jsonl" in refused("day1.jsonl", overrides=["pack.seed=1"])


@pytest.mark.parametrize("grown", [False, True])
def test_a_source_that_is_read_otherwise_asks_also_where_its_file_has_grown(rows, grown):
    lines = (rows / "day0.jsonl").read_text("utf-8").splitlines()
    chats = [json.loads(line)["messages"] for line in lines]
    rewritten = "".join(json.dumps({"id": "a text", "messages": chat, "chat": chat}) + "\n" for chat in chats)
    (rows / "day0.jsonl").write_text(rewritten)
    one("day0.jsonl", "day1.jsonl")
    (rows / "day0.jsonl").write_text(rewritten * (1 + grown))
    as_text = {"schema": "text", "columns": {"text": "id"}, "ignore": ["messages", "chat"]}
    for source, told in (
        ({"limit": 2}, "sources[day0.jsonl].limit was null, is 2"),
        ({"take": {"rows": 2}}, "sources[day0.jsonl].take was null, is "),
        ({"split": "eval"}, 'split of day0.jsonl was "train", is "eval"'),
        ({"columns": {"messages": "chat"}}, 'columns of day0.jsonl was {}, is {"messages":"chat"}'),
        (as_text, 'schema of day0.jsonl was "messages", is "text"'),
    ):
        assert told in refused({"path": "day0.jsonl", **source}, "day1.jsonl")
        forced = one({"path": "day0.jsonl", **source}, "day1.jsonl", force=True, dry_run=True)
        assert any(told in sentence for sentence in forced.replaced.sentences())


def test_other_rules_and_another_template_ask_as_before(rows):
    one("day0.jsonl")
    for rule in ("pack.seed=1", "supervision.turns=last"):
        assert "cache was built by another recipe: " in refused("day0.jsonl", overrides=[rule])
    with (rows / "tokenizer" / "chat_template.jinja").open("a", encoding="utf-8") as file:
        file.write("{# changed #}")
    assert "chat_template.jinja differs" in refused("day0.jsonl")


def test_a_change_far_into_a_long_rule_is_shown(rows):
    names = ", ".join(f"{{name: filter-{i}, of: answers, chars: {{max: 100000000{i}}}}}" for i in range(4))
    one("day0.jsonl", overrides=[f"filters=[{names}]"])
    told = refused("day0.jsonl", overrides=[f"filters=[{names.replace('1000000002', '1000000007')}]"])
    was, now = told.split(", is …")
    assert "filters was …" in was and "1000000002" in was and "1000000007" in now and len(told) < 250


def test_a_file_may_be_in_one_split_more_or_less(rows):
    both = [{"path": "day0.jsonl", "split": split} for split in ("train", "eval")]
    one(*both)
    assert one(both[1]).built
    assert one(*both).built
    one(both[0])
    assert 'split of day0.jsonl was "train", is "eval"' in refused(both[1])


def made_of(manifest, *inputs):
    read = {"split": "train", "format": "jsonl", "schema": "messages", "columns": {}, "num_bytes": 1, "num_rows": 1}
    entries = tuple(Input(path=path, sha256=sha256, **read) for path, sha256 in inputs)
    return msgspec.structs.replace(manifest, inputs=entries)


HUB = "hf://datasets/org/name@{}/rows.jsonl"


@pytest.mark.parametrize(
    ("before", "after", "is_kept"),
    [
        (("a.jsonl", "aa"), ("a.jsonl", "bb"), True),
        (("a.jsonl", "aa"), ("b.jsonl", "aa"), True),
        (("a.jsonl", "aa"), ("b.jsonl", "bb"), False),
        (("-", "aa"), ("-", "aa"), True),
        (("-", "aa"), ("-", "bb"), False),  # other rows are piped in: nothing says that they are the same input
        (("-", "aa"), ("a.jsonl", "aa"), True),
        ((HUB.format("a" * 40), "aa"), (HUB.format("b" * 40), "bb"), True),
        ((HUB.format("a" * 40), "aa"), ("hf://datasets/org/other/rows.jsonl", "bb"), False),
    ],
)
def test_an_input_is_known_by_its_name_or_its_bytes(starter_cache, before, after, is_kept):
    manifest = read_manifest(starter_cache)
    old = make_recipe(manifest.recipe | {"sources": [{"path": before[0]}]})
    new = make_recipe(manifest.recipe | {"sources": [{"path": after[0]}]})
    cache = msgspec.structs.replace(made_of(manifest, before), recipe=to_json(old))
    found = changes(cache, Provenance.of(made_of(manifest, after), new))
    assert (found.leaving, found.rules) == (() if is_kept else (before[0],), ())
    assert found.need_force is not is_kept


def test_many_inputs_are_reported_by_the_first_few(starter_cache):
    manifest = read_manifest(starter_cache)
    many = made_of(manifest, *((f"{number}.jsonl", f"{number:04x}") for number in range(1000)))
    (told,) = changes(many, Provenance.of(manifest, make_recipe(manifest.recipe))).sentences()
    assert told.startswith("would lose inputs (1000 of 1000): 0.jsonl, 1.jsonl")
    assert told.endswith(" and 992 more")
    texts = [msgspec.structs.replace(entry, schema="text") for entry in many.inputs]
    wanted = Provenance.of(msgspec.structs.replace(many, inputs=tuple(texts)), make_recipe(manifest.recipe))
    found = changes(many, wanted)
    assert sorted(found.rules) == sorted(f'schema of {n}.jsonl was "messages", is "text"' for n in range(1000))
    assert found.sentences()[0].endswith(' of 7.jsonl was "messages", is "text" and 992 more')


def test_a_rule_of_any_source_that_names_a_file_takes_force(rows):
    """The first of two, and true in place of 1, which Python takes for the same."""
    path = rows / "day0.jsonl"
    lines = [json.loads(line) | {"n": i} for i, line in enumerate(path.read_text("utf-8").splitlines())]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")

    def sources(**where):
        held_out = {"path": "day0.jsonl", "split": "validation", "where": {"n": {"min": 2}}}
        return {"path": "day0.jsonl", "where": {"n": where}}, held_out

    one(*sources(max=1))
    assert "sources[day0.jsonl].where was" in refused(*sources(max=0))
    assert not one(*sources(max=1)).built
    one(*sources(not_in=[1]), force=True)
    assert "sources[day0.jsonl].where was" in refused(*sources(not_in=[True]))
