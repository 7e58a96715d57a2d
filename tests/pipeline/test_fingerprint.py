"""The fingerprint: what anybody computes from a cache's files, the same wherever the same was built, and of nothing else."""

import hashlib
import json
import shutil
from contextlib import suppress

import msgspec
import pyarrow as pa
import pytest
from bucket_objects import put
from command_line import fields
from fingerprint_oracle import recomputed
from preference_rows import pair
from store.samples import small_manifest
from xxhash import xxh3_128_hexdigest

from packer.audit.diff import diff
from packer.audit.verify import verify
from packer.errors import CheckError
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe
from packer.store.arrow_columns import document_rows
from packer.store.cache import fingerprint
from packer.store.manifest import Manifest, decode_manifest, encode_manifest, read_manifest, sealed, write_manifest
from packer.store.writing import shard_name


def copied_place(starter, folder):
    """Two sources with a row twice, a benchmark, a tokenizer and a template that is no part of it."""
    folder.mkdir(parents=True)
    for name in ("chat.jsonl", "alpaca.jsonl"):
        lines = (starter / "data" / name).read_text("utf-8").splitlines(keepends=True)[:25]
        (folder / name).write_text("".join([*lines, lines[3]]), "utf-8")
    shutil.copytree(starter / "tokenizer", folder / "tokenizer")
    shutil.copy(starter / "tokenizer" / "chat_template.jinja", folder / "own.jinja")
    asked = json.loads((folder / "chat.jsonl").read_text("utf-8").splitlines()[5])["messages"]
    (folder / "bench.csv").write_text('question\n"' + next(m["content"] for m in asked if m["role"] == "user") + '"\n')
    return folder


@pytest.fixture(scope="module")
def place(starter, tmp_path_factory):
    return copied_place(starter, tmp_path_factory.mktemp("place") / "here")


def values_at(folder):
    """A recipe that names places wherever it can, and leaves rows out for four reasons."""
    return {
        "sources": [
            {"path": f"{folder}/chat.jsonl", "split": "train"},
            {"path": f"{folder}/alpaca.jsonl", "split": "eval", "where": {"output": {"not_matches": "Spring"}}},
        ],
        "tokenizer": f"{folder}/tokenizer",
        "engine": "reference",
        "template": {"file": f"{folder}/own.jinja"},
        "deduplicate": {"exact": "bytes"},
        "decontaminate": {"against": [{"path": f"{folder}/bench.csv", "name": "bench"}]},
        "pack": {"block_len": 256},
        "partition_bytes": 32000,
    }


def plain(values):
    """The same without rules about rows."""
    left = {key: value for key, value in values.items() if key not in ("deduplicate", "decontaminate")}
    sources = [{key: value for key, value in source.items() if key != "where"} for source in values["sources"]]
    return left | {"sources": sources}


def made(values, folder):
    return build(make_recipe(values), folder, jobs=1, fail_above=1).fingerprint


@pytest.fixture(scope="module")
def caches(place, tmp_path_factory):
    """A cache with rules about rows, and one without."""
    folder = tmp_path_factory.mktemp("caches")
    for name, values in (("ruled", values_at(place)), ("plain", plain(values_at(place)))):
        made(values, folder / name)
    codes = {json.loads(line)["code"] for line in (folder / "ruled" / "rejected.jsonl").read_text().splitlines()}
    assert codes >= {"filtered", "duplicate", "contaminated", "multimodal"}
    return folder


def with_flags(folder):
    messages = [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "2", "weight": 1}]
    (folder / "rows.jsonl").write_text(json.dumps({"messages": messages, "id": "ä"}) + "\n", "utf-8")


def with_pairs(folder):
    (folder / "rows.jsonl").write_text("".join(json.dumps(pair(n) | {"margin": n / 3}) + "\n" for n in range(20)))


@pytest.mark.parametrize("name", ["ruled", "plain", "flags", "pairs", "named template"])
def test_anybody_can_compute_it_from_the_files_of_a_cache(caches, place, tmp_path, name):
    folder = caches / name
    if not folder.exists():
        write = with_pairs if name == "pairs" else with_flags
        write(tmp_path)
        values = {"sources": [{"path": str(tmp_path / "rows.jsonl")}], "tokenizer": str(place / "tokenizer")}
        pack = {"mode": "none"} if name == "pairs" else {"block_len": 64}
        template = {"template": {"name": "chatml"}} if name == "named template" else {}
        folder = tmp_path / "cache"
        made(values | template | {"pack": pack}, folder)
    found = verify(folder, level="full")
    assert found.ok and found.fingerprint == fingerprint(read_manifest(folder)) == recomputed(folder)
    assert verify(folder, expect=found.fingerprint).ok
    assert not verify(folder, expect=found.manifest_sha256).ok


def renamed(values, folder):
    for source in values["sources"]:
        moved = source["path"].replace(".jsonl", "-renamed.jsonl")
        shutil.move(source["path"], moved)
        source["path"] = moved
    shutil.move(folder / "tokenizer", folder / "model")
    shutil.move(folder / "own.jinja", folder / "other.jinja")
    shutil.move(folder / "bench.csv", folder / "questions.csv")
    values |= {"tokenizer": f"{folder}/model", "template": {"file": f"{folder}/other.jinja"}}
    values["decontaminate"]["against"][0]["path"] = f"{folder}/questions.csv"


def inside_the_tokenizer(values, folder):
    del values["template"]


def named_schemas(values, folder):
    for source, schema in zip(values["sources"], ("messages", "alpaca"), strict=True):
        source |= {"schema": schema, "format": "jsonl"}


@pytest.mark.parametrize(
    ("change", "rules"),
    [(None, "plain"), (renamed, "ruled"), (inside_the_tokenizer, "ruled"), (named_schemas, "plain")],
)
def test_two_people_get_the_same_in_other_folders_under_other_names(starter, caches, tmp_path, change, rules):
    folder = copied_place(starter, tmp_path / "there")
    values = values_at(folder)
    if change is not None:
        change(values, folder)
    found = made(values if rules == "ruled" else plain(values), tmp_path / "cache")
    assert found == fingerprint(read_manifest(caches / rules))
    between = diff(caches / rules, tmp_path / "cache")
    assert between.same and not between.same_bytes


def test_a_pattern_is_the_files_that_it_matches(place, tmp_path):
    values = plain(values_at(place)) | {"deduplicate": {"exact": "bytes"}}
    both = [{"path": f"{place}/{name}.jsonl"} for name in ("alpaca", "chat")]
    one = made(values | {"sources": both}, tmp_path / "list")
    assert one == made(values | {"sources": [{"path": f"{place}/*.jsonl"}]}, tmp_path / "pattern")


@pytest.mark.parametrize("what", ["rows", "cache"])
def test_a_bucket_does_not_change_it(place, caches, tmp_path, in_memory, what):
    """`in_memory`: every URL leads to one store."""
    values, folder = values_at(place), "s3://bucket/cache"
    if what == "rows":
        put(in_memory, place)
        for named in (*values["sources"], *values["decontaminate"]["against"]):
            named["path"] = named["path"].replace(str(place), "s3://bucket/cache")
        folder = tmp_path / "cache"
    assert made(values, folder) == fingerprint(read_manifest(caches / "ruled"))


def test_standard_input_does_not_change_it(place, tmp_path):
    limits = ("--fail-above", 1, "--set", "partition_bytes=30000")
    options = ("--tokenizer", place / "tokenizer", "--block-len", 256, *limits)
    piped = fields("build", "-", *options, "-o", tmp_path / "piped", stdin=(place / "chat.jsonl").read_bytes())
    named = fields("build", place / "chat.jsonl", *options, "-o", tmp_path / "named")
    assert piped["fingerprint"] == named["fingerprint"]


def edited(name, old, new):
    def change(values, folder):
        text = (folder / name).read_text("utf-8")
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1), "utf-8")

    return change


DECIDES = {
    "a word of a row": edited("chat.jsonl", "Canberra", "Sydney"),
    "a rejected row that is rejected for another reason": edited("chat.jsonl", "image_url", "no_such_part"),
    "the order of sources": lambda values, folder: values["sources"].reverse(),
    "the template": edited("own.jinja", "{%", "{# another #}{%"),
}
"""And every key of a recipe that decides, by `test_of_all_that_a_manifest_says_it_is_of_what_decides_alone`."""


def test_whatever_decides_changes_it(starter, caches, tmp_path):
    found = {"nothing": fingerprint(read_manifest(caches / "ruled"))}
    for number, (name, change) in enumerate(DECIDES.items()):
        folder = copied_place(starter, tmp_path / str(number))
        values = values_at(folder)
        change(values, folder)
        found[name] = made(values, folder / "cache")
    assert len({*found.values()}) == len(found), sorted(found, key=found.get)


UNDECIDED = {
    *("engine", "engine_version", "versions", "recipe_fingerprint", "rejected_sha256", "selection"),
    *("recipe.engine", "recipe.tokenizer", "recipe.template.file", "recipe.template.name"),
    *("recipe.decontaminate.against.path", "inputs.path", "recipe.sources.path", "recipe.sources.split"),
    *("recipe.sources.format", "recipe.sources.schema", "recipe.sources.columns", "recipe.sources.roles"),
    *("recipe.sources.ignore", "recipe.sources.limit"),
    *(f"shards.{name}" for name in ("path", "key", "first_line", "num_bytes", "xxh3", "sha256", "rows_xxh3", "places")),
    *(f"shards.num_{name}" for name in ("rows", "kept", "input_rows", "rejected", "tokens", "trained", "merged")),
    *("shards.num_skipped", "shards.num_last_tokens"),
}
"""What a manifest says and the fingerprint does not: places, engine and versions; and what follows from the rest."""


def leaves(value, where=()):
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from leaves(each, (*where, key))
    elif isinstance(value, list) and value:
        for index, each in enumerate(value):
            yield from leaves(each, (*where, index))
    else:
        yield where


@pytest.mark.parametrize(
    "odd", [{"template": 5}, {"decontaminate": "x"}, {"decontaminate": {"against": [3, {"path": 1}]}}]
)
def test_a_recipe_of_any_form_has_one(odd):
    assert fingerprint(small_manifest(recipe=odd)) != fingerprint(small_manifest(recipe={}))


def test_a_recipe_that_is_too_deep_to_write_is_an_error_of_the_cache(tmp_path):
    for depth in range(900, 1100):
        nested = b'"x":' + b"[" * depth + b"]" * depth + b',"mode"'
        content = encode_manifest(small_manifest()).replace(b'"mode"', nested)
        with suppress(CheckError):
            fingerprint(decode_manifest(tmp_path, sealed(content)))


def test_documents_that_were_changed_under_their_old_names_fail_a_pinned_fingerprint(place, tmp_path):
    """A doc_id has 64 bits, for which others can be found; here it simply stays."""
    cache = tmp_path / "cache"
    pinned = made(plain(values_at(place)) | {"pack": {"mode": "none"}}, cache)
    manifest = read_manifest(cache)
    shard = manifest.shards[0]
    content, start = bytearray((cache / shard.path).read_bytes()), shard.places[0].columns["digest"]
    whole = pa.py_buffer(content)
    ids = pa.ipc.open_file(whole).get_batch(0).column("input_ids").buffers()[-1]
    content[ids.address - whole.address] ^= 1
    digests = document_rows(pa.ipc.open_file(whole).get_batch(0)).digests()
    content[start : start + digests.nbytes] = digests.tobytes()
    sha256 = hashlib.sha256(content).hexdigest()
    path = f"documents/{shard_name(split=shard.split, index=0, sha256=sha256)}"
    (cache / shard.path).unlink()
    (cache / path).write_bytes(content)
    xxh3, rows_xxh3 = xxh3_128_hexdigest(content), xxh3_128_hexdigest(digests.tobytes())
    forged = msgspec.structs.replace(shard, path=path, sha256=sha256, xxh3=xxh3, rows_xxh3=rows_xxh3)
    write_manifest(cache, msgspec.structs.replace(manifest, shards=(forged, *manifest.shards[1:])))
    found = verify(cache, expect=pinned)
    assert [finding.what for finding in found.findings] == ["values"], found.findings
    true = msgspec.structs.replace(forged, rows_sha256=found.findings[0].found)
    write_manifest(cache, msgspec.structs.replace(manifest, shards=(true, *manifest.shards[1:])))
    assert verify(cache).ok, "so nothing but the pin would tell"
    assert [finding.what for finding in verify(cache, expect=pinned).findings] == ["fingerprint"]


OTHER = {str: "f0", int: 7, float: 0.75, type(None): 3, dict: {"x": None}, list: ["f1"], bool: None}


def test_of_all_that_a_manifest_says_it_is_of_what_decides_alone(caches):
    whole = json.loads((caches / "ruled" / "manifest.json").read_bytes())
    del whole["checksum"]
    before = fingerprint(msgspec.convert(whole, Manifest))
    changed = {True: 0, False: 0}
    for where in [*leaves(whole)]:
        inner = whole
        for key in where[:-1]:
            inner = inner[key]
        value = inner[where[-1]]
        inner[where[-1]] = (
            (not value) if isinstance(value, bool) else value + 1 if type(value) is int else OTHER[type(value)]
        )
        try:
            found = fingerprint(msgspec.convert(whole, Manifest))
        except (msgspec.ValidationError, ValueError):
            continue  # no manifest says so
        finally:
            inner[where[-1]] = value
        names = [key for key in where if isinstance(key, str)]
        decides = not any(".".join(names[: end + 1]) in UNDECIDED for end in range(len(names)))
        assert (found != before) == decides, where
        changed[decides] += 1
    assert changed[True] > 60 and changed[False] > 100, changed
