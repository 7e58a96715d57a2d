"""Which engine encodes: resolved, recorded, remembered; and the same documents whichever it is."""

import json
import os
import re
import shutil
from pathlib import Path

import msgspec
import pytest
from shorter_starter import SETTLED, shortened
from watched_builds import Notes

from packer.audit.verify import verify
from packer.errors import RecipeError
from packer.model.backend import is_known_fast
from packer.pipeline import documents, identity
from packer.pipeline.from_python import build
from packer.pipeline.identity import RULES_VERSION, resolve_engine
from packer.pipeline.plan.build_plan import plan_build
from packer.recipe.recipe import load_recipe
from packer.store.cache import fingerprint
from packer.store.manifest import read_manifest
from packer.tokenize import fast
from packer.tokenize.fast import EngineDiffersError, ReferenceFailsError
from packer.tokenize.reference_encoder import ReferenceEncoder

pytest.importorskip("gigatoken", reason="gigatoken MISSING: the fast engine is not tested")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home of its own for every test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def tokenizer_json(starter):
    return (starter / "tokenizer" / "tokenizer.json").read_bytes()


@pytest.fixture(scope="module")
def starter(starter, tmp_path_factory):
    """The example, with a tokenizer that splits texts as GPT-2 does: gigatoken does not know the example's own way."""
    folder = shortened(starter, tmp_path_factory.mktemp("splits_as_gpt_2") / "starter", 11)
    path = folder / "tokenizer" / "tokenizer.json"
    splits = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"pre_tokenizer": splits}), "utf-8")
    return folder


def build_with(starter, folder, *keys, progress=None):
    return build(load_recipe(starter / "recipe.yaml", [*SETTLED, *keys]), folder, jobs=1, progress=progress)


@pytest.fixture(scope="module")
def by_reference(starter, tmp_path_factory):
    """The cache that the reference makes. Shared: tests that change something copy it."""
    folder = tmp_path_factory.mktemp("reference") / "cache"
    build_with(starter, folder, "engine=reference")
    return folder


def test_both_engines_make_the_same_documents_and_blocks(starter, by_reference, tmp_path):
    one, other = build_with(starter, tmp_path / "fast", "engine=fast").manifest, read_manifest(by_reference)
    assert fingerprint(one) == fingerprint(other)
    assert [shard.sha256 for shard in one.shards] == [shard.sha256 for shard in other.shards]
    assert one.recipe_fingerprint != other.recipe_fingerprint
    assert (one.engine, one.recipe["engine"]) == ("fast", "fast")
    assert re.fullmatch(r"gigatoken 0\.\S+, tokenizers 0\.\S+, jinja2 \S+", one.engine_version)
    assert other.engine_version.startswith("tokenizers ")
    assert verify(tmp_path / "fast", level="full").ok
    assert not build_with(starter, tmp_path / "fast").built, "auto is the engine that is there"


def test_auto_stays_with_the_engine_of_the_cache_that_is_there(starter, by_reference, tmp_path):
    shutil.copytree(by_reference, tmp_path / "cache")
    assert not build_with(starter, tmp_path / "cache").built
    changed = Notes()
    third = build_with(starter, tmp_path / "cache", "engine=fast", progress=changed)
    assert third.num_partitions_built == 5
    assert changed.notes == ["the engine was reference and is fast: everything is tokenized again"]


def test_what_an_update_causes_to_be_tokenized_again_is_noted(starter, tmp_path):
    manifest, recipe = build_with(starter, tmp_path / "cache").manifest, load_recipe(starter / "recipe.yaml", SETTLED)
    for changed, note in (
        ({}, None),
        ({"engine_version": "gigatoken 0.1"}, "the engine was gigatoken 0.1 and is "),
        ({"rules_version": 1}, f"the version of packer's rules was 1 and is {RULES_VERSION}"),
    ):
        notes = Notes()
        plan_build(recipe, notes, before=msgspec.structs.replace(manifest, **changed))
        assert len(notes.notes) == (note is not None)
        assert all(each.startswith(note) and each.endswith(": everything is tokenized again") for each in notes.notes)


def test_without_a_fast_library_auto_is_the_reference_and_fast_is_refused(starter, tmp_path, monkeypatch):
    fast_cache = build_with(starter, tmp_path / "cache").manifest
    assert (fast_cache.engine, fast_cache.recipe["engine"]) == ("fast", "fast"), "where it agrees, and so recorded"
    monkeypatch.setattr(identity, "fast_version", lambda: None)
    with pytest.raises(RecipeError, match="gigatoken is not installed") as caught:
        build_with(starter, tmp_path / "other", "engine=fast")
    assert caught.value.hint == "pip install gigatoken, or engine='auto'"
    notes = Notes()
    manifest = build_with(starter, tmp_path / "cache", progress=notes).manifest
    assert manifest.engine == "reference"
    assert manifest.content_fingerprint == fast_cache.content_fingerprint
    assert notes.notes == ["the engine was fast and is reference: everything is tokenized again"]


def replaced(path, what):
    """Put something else in the place of a file."""
    kept = path.read_bytes()
    path.unlink()
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "a device":
        path.symlink_to("/dev/zero")
    elif what == "a folder":
        path.mkdir()
    elif what == "of another tokenizer":
        path.write_bytes(kept.translate(bytes.maketrans(b"0123456789abcdef", b"123456789abcdef0"), b""))
    elif what == "large":
        path.write_bytes(kept + bytes(2**20))
    else:
        path.write_bytes(what)


@pytest.mark.parametrize("difference", [None, "other ids for 'x'"])
@pytest.mark.parametrize(
    "what",
    [
        *("a pipe", "a device", "a folder", "of another tokenizer", "large"),
        *(b"", b'{"difference": null}', b"agrees\n", b"\x1b]0;title\x07 differs\n", b"\xff"),
    ],
    ids=str,
)
def test_what_lies_in_the_place_of_an_outcome_is_not_believed(what, difference, tokenizer_json, home, monkeypatch):
    """It is neither waited for nor told; the tokenizer is tried again, and its outcome kept where a file can be."""
    tried = []

    def differences(content):
        tried.append(content)
        return difference

    monkeypatch.setattr(identity, "differences", differences)
    first = resolve_engine("auto", tokenizer_json)
    assert first.name == ("fast" if difference is None else "reference")
    (path,) = home.rglob("*.txt")
    kept = path.read_bytes()
    assert len(kept) <= 80
    replaced(path, what)
    assert not is_known_fast("auto", tokenizer_json)
    assert resolve_engine("auto", tokenizer_json) == first
    assert len(tried) == 2
    if what != "a folder":
        assert path.read_bytes() == kept
        again = resolve_engine("auto", tokenizer_json)
        assert (again.name, len(tried)) == (first.name, 2)


def test_a_cache_folder_that_is_not_absolute_is_ignored(tokenizer_json, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setattr(identity, "differences", lambda _: None)
    for relative in ("here", "./here", ""):
        monkeypatch.setenv("XDG_CACHE_HOME", relative)
        resolve_engine("auto", tokenizer_json)
    assert [path.name for path in tmp_path.iterdir() if path.name != "starter"] == ["user"]
    assert len(list((tmp_path / "user" / ".cache" / "packer" / "engines").iterdir())) == 1


def test_a_tokenizer_that_is_encoded_otherwise_is_the_references(tokenizer_json, monkeypatch):
    monkeypatch.setattr(identity, "differences", lambda _: "other ids for 'x'")
    assert resolve_engine("auto", tokenizer_json).name == "reference"
    with pytest.raises(RecipeError, match="engine is fast, but: it was found not to load this tokenizer, or"):
        resolve_engine("fast", tokenizer_json)


def test_a_home_that_cannot_be_written_to_is_no_error(tokenizer_json, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert resolve_engine("auto", tokenizer_json).name == "fast"
    monkeypatch.delenv("XDG_CACHE_HOME")

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert resolve_engine("auto", tokenizer_json).name == "fast"


def corrupt(monkeypatch, *, shift):
    """The fast encoder gets one text in a hundred wrong from now on, whenever it meets it."""
    right, seen, wrong = fast._encode, [], set()

    def encode(backend, texts):
        ids, offsets = right(backend, texts)
        ids = ids.copy()
        for i in range(len(texts)):
            seen.append(texts[i])
            if len(seen) % 100 == 50:
                wrong.add(texts[i])
            if texts[i] in wrong and offsets[i + 1] - offsets[i] > 20:
                ids[offsets[i] + 15 : offsets[i] + 17] += shift
        return ids, offsets

    monkeypatch.setattr(fast, "_encode", encode)


def test_few_rows_are_encoded_by_the_reference_for_either_engine(starter, tmp_path, tokenizer_json, monkeypatch):
    """What it takes to load the fast encoder is not spent on them; the recipe names it all the same."""
    resolve_engine("auto", tokenizer_json)
    expected = build_with(starter, tmp_path / "fast", "engine=fast")
    asked = []
    monkeypatch.setattr(fast, "_encode", lambda *arguments: asked.append(arguments))
    monkeypatch.setattr("packer.model.backend.WORTH_LOADING", 10**6)
    found = build_with(starter, tmp_path / "few", "engine=fast")
    assert not asked
    assert found.manifest.engine == "fast"
    assert found.fingerprint == expected.fingerprint


def refuse_to_compare(*_):
    raise ReferenceFailsError("tokenizers fails")


@pytest.mark.parametrize(
    ("how", "remembered"),
    [("by a second encoding", "reference"), ("by the proof", "reference"), ("the reference alone fails", "fast")],
)
def test_an_engine_that_differs_in_a_build_or_cannot_be_compared_gives_way_to_the_reference(
    how, remembered, starter, by_reference, tmp_path, tokenizer_json, monkeypatch
):
    resolve_engine("auto", tokenizer_json)  # tried while it is right
    if how == "the reference alone fails":
        monkeypatch.setattr(fast, "compare", refuse_to_compare)
    else:
        monkeypatch.setattr(fast, "CHECK_EVERY", 64 if how == "by a second encoding" else 10**9)
        corrupt(monkeypatch, shift=1)
    notes = Notes()
    found = build_with(starter, tmp_path / "cache", progress=notes)
    assert found.fingerprint == fingerprint(read_manifest(by_reference))
    assert any("building with the reference engine" in note for note in notes.notes)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert resolve_engine("auto", tokenizer_json).name == remembered
    assert not build_with(starter, tmp_path / "cache").built


SMALL = "partition_bytes=16KiB"


def test_nothing_is_journaled_before_its_ids_are_compared_with_the_reference(
    starter, tmp_path, tokenizer_json, monkeypatch
):
    """Workers leave that to this process, which alone has loaded the reference; here the third comparison differs."""
    expected = build_with(starter, tmp_path / "reference", "engine=reference", SMALL)
    resolve_engine("auto", tokenizer_json)
    journal, compared = tmp_path / "cache" / ".packer" / "partitions", []

    def compare(definition, sampled):
        if not sampled:
            return  # of the reference
        assert len([*journal.glob("*.json")]) == len(compared)
        compared.append(len(sampled))
        ids, offsets = ReferenceEncoder(definition).encode([each.text for each in sampled])
        for number, each in enumerate(sampled):
            assert each.ids.tolist() == ids[offsets[number] : offsets[number + 1]].tolist()
        if len(compared) == 3:
            raise EngineDiffersError("other ids")

    monkeypatch.setattr(documents, "compare", compare)
    notes, recipe = Notes(), load_recipe(starter / "recipe.yaml", [*SETTLED, "engine=fast", SMALL])
    found = build(recipe, tmp_path / "cache", jobs=2, progress=notes)
    assert len(compared) == 3
    assert any("building with the reference engine" in note for note in notes.notes)
    assert found.manifest.content_fingerprint == expected.manifest.content_fingerprint
