"""Builds of tokenizers and data sets of the Hub, with the Hub's real client, against a small Hub on this machine."""

import json
import sys
import threading

import huggingface_hub
import pytest
from audit.foreign.prepared import ANSWER, PROMPT, Row, write
from command_line import fields, run
from small_hub import TOKEN, files_of
from train_starter_tokenizer import FILES
from watched_builds import Notes

from packer.audit.foreign import audit_foreign
from packer.audit.preview import preview
from packer.audit.verify import verify
from packer.audit.view import view_row
from packer.errors import InputError, PackerError, StorageError, UsageError
from packer.hub import fetch_data, pin
from packer.names import data_name, tokenizer_name
from packer.pipeline.from_python import build
from packer.recipe.recipe import load_recipe, make_recipe, to_json
from packer.store.cache import Cache

DATA = "hf://datasets/tiny/talk"
NEEDED = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"}


def of_hub(path="data/*.jsonl", tokenizer="tiny/chat", **source):
    values = {"sources": [{"path": f"{DATA}/{path}", **source}], "tokenizer": tokenizer, "pack": {"block_len": 512}}
    return make_recipe(values)


def manifest_of(folder):
    return json.loads((folder / "manifest.json").read_text("utf-8"))


def fetched(hub):
    """Files whose bytes were fetched."""
    return {entry.split("/")[-1] for entry in hub.asked if entry.startswith("GET") and "/resolve/" in entry}


def test_a_build_names_commits_and_fetches_what_it_needs_once(hub, tmp_path):
    notes = Notes()
    build(of_hub(), tmp_path / "cache", jobs=1, progress=notes)
    assert fetched(hub) == {*NEEDED, "a.jsonl", "b.jsonl"}
    model, data = (hub.repositories[key]["branches"]["main"] for key in hub.repositories)
    manifest = manifest_of(tmp_path / "cache")
    assert manifest["recipe"]["tokenizer"] == f"tiny/chat@{model}"
    assert [source["path"] for source in manifest["recipe"]["sources"]] == [f"{DATA}@{data}/data/*.jsonl"]
    assert [entry["path"] for entry in manifest["inputs"]] == [f"{DATA}@{data}/data/{name}.jsonl" for name in "ab"]
    assert notes.notes[:2] == [f"{DATA} is commit {data[:12]}", f"tokenizer tiny/chat is commit {model[:12]}"]
    hub.asked.clear()
    assert verify(tmp_path / "cache", sources=DATA, reencode=True, threads=1).ok
    assert verify(tmp_path / "cache", sources=f"{DATA}@{data}/data", threads=1).ok
    hub.asked.clear()
    report = verify(tmp_path / "cache", sources=["/", "hf://datasets/tiny/tal", f"{DATA}/dat"], threads=1)
    assert {finding.path for finding in report.findings} == {f"{DATA}@{data}/data/{name}.jsonl" for name in "ab"}
    assert {finding.found for finding in report.findings} == {"not read: below no --sources"}
    assert hub.asked == [], "names with commits need no network"
    build(of_hub(), tmp_path / "cache", jobs=1)
    assert not fetched(hub)


def test_a_build_of_the_hub_is_the_build_of_the_same_files_here(hub, tmp_path):
    build(of_hub("data/a.jsonl", limit=2), tmp_path / "there", jobs=1)
    ((_, path),) = fetch_data(data_name(f"{DATA}/data/a.jsonl"))
    recipe = of_hub()
    here = {**to_json(recipe), "sources": [{"path": path.as_posix(), "limit": 2}]}
    here["tokenizer"] = (FILES / "tokenizer").as_posix()
    build(make_recipe(here), tmp_path / "here", jobs=1)
    there, here = (manifest_of(tmp_path / name) for name in ("there", "here"))
    for key in ("recipe_fingerprint", "content_fingerprint", "model", "shards"):
        assert there[key] == here[key]


def test_preview_and_inspect_take_names_of_the_hub(hub, tmp_path):
    recipe = of_hub("data/a.jsonl")
    commit = hub.repositories["dataset", "tiny/talk"]["branches"]["main"]
    assert [each.name for each in preview(recipe, rows=1).inputs] == [f"{DATA}@{commit}/data/a.jsonl"]
    build(recipe, tmp_path / "cache", jobs=1)
    with Cache.open(tmp_path / "cache") as cache:
        assert view_row(cache, "a.jsonl", 0).documents


@pytest.mark.parametrize("name", ["tiny/chat", "hf://tiny/chat@main"])
def test_an_audit_of_foreign_rows_takes_a_tokenizer_of_the_hub(hub, tmp_path, name):
    rows = write(tmp_path / "rows", [Row([(PROMPT, 5), (ANSWER, 6)])])
    notes = Notes()
    report = audit_foreign(rows, tokenizer=name, progress=notes)
    commit = hub.repositories["model", "tiny/chat"]["branches"]["main"]
    assert report.header == "<|im_start|>assistant" and fetched(hub) == NEEDED
    assert notes.notes == [f"tokenizer tiny/chat{'@main' if '@' in name else ''} is commit {commit[:12]}"]
    assert report == audit_foreign(rows, tokenizer=FILES / "tokenizer")
    told = fields("verify", "--foreign", rows, "--tokenizer", name)
    assert told["header"] == "<|im_start|>assistant"


def test_a_branch_that_moved_is_followed_and_a_commit_is_not(hub, tmp_path):
    build(of_hub("data/a.jsonl"), tmp_path / "cache", jobs=1)
    before = manifest_of(tmp_path / "cache")
    pinned = before["recipe"]["sources"][0]["path"]
    rows = (FILES / "data" / "chat.jsonl").read_bytes().splitlines(keepends=True)
    after = hub.commit("dataset", "tiny/talk", {"data/a.jsonl": b"".join(rows[:3])})
    build(of_hub("data/a.jsonl"), tmp_path / "cache", jobs=1)
    assert manifest_of(tmp_path / "cache")["inputs"][0]["path"] == f"{DATA}@{after}/data/a.jsonl"
    recipe = make_recipe({**to_json(of_hub()), "sources": [{"path": pinned}]})
    build(recipe, tmp_path / "cache", jobs=1)
    assert manifest_of(tmp_path / "cache")["content_fingerprint"] == before["content_fingerprint"]


LISTS_ITS_CACHE = pytest.mark.skipif(
    not hasattr(huggingface_hub, "get_cached_repo_tree"), reason="this client asks the Hub which files there are"
)


@LISTS_ITS_CACHE
@pytest.mark.parametrize("how", ["offline", "closed"])
def test_without_a_network_the_cache_of_the_client_is_used_and_it_is_said(hub, how, tmp_path, monkeypatch):
    build(of_hub(), tmp_path / "cache", jobs=1)
    (tmp_path / "cache" / "manifest.json").rename(tmp_path / "first.json")
    without_network(hub, how, monkeypatch)
    hub.asked.clear()
    notes = Notes()
    build(of_hub(), tmp_path / "cache", jobs=1, progress=notes)
    assert hub.asked == []
    assert (tmp_path / "cache" / "manifest.json").read_bytes() == (tmp_path / "first.json").read_bytes()
    assert sum("the Hub itself was not reached" in told for told in notes.notes) == 2


def without_network(hub, how, monkeypatch):
    from huggingface_hub import constants

    if how == "offline":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    else:
        hub.closed = True


@LISTS_ITS_CACHE
@pytest.mark.parametrize(
    ("how", "said", "hint"),
    [
        ("offline", "and HF_HUB_OFFLINE is set", "unset HF_HUB_OFFLINE"),
        ("closed", "does not answer: ", "check the network"),
    ],
)
def test_without_a_network_and_with_an_empty_cache_it_is_said_what_to_do(hub, how, said, hint, monkeypatch):
    without_network(hub, how, monkeypatch)
    for place in ("tokenizer", "source"):
        with pytest.raises(InputError, match=said) as caught:
            pin(tokenizer_name("tiny/chat") if place == "tokenizer" else data_name(f"{DATA}/data/a.jsonl"))
        assert str(caught.value.hint).startswith(hint) and "hf download tiny/" in str(caught.value.hint)


@LISTS_ITS_CACHE
def test_what_is_not_in_the_cache_yet_is_not_taken_for_what_is_not_there(hub, tmp_path, monkeypatch):
    build(of_hub("data/a.jsonl"), tmp_path / "cache", jobs=1)
    without_network(hub, "offline", monkeypatch)
    with pytest.raises(InputError, match="not in the cache of the Hub"):
        build(of_hub("data/*.jsonl"), tmp_path / "other", jobs=1)


@pytest.mark.parametrize(
    "use", [lambda: pin(tokenizer_name("tiny/chat")), lambda: fetch_data(data_name(f"{DATA}@{'0' * 40}/x"))]
)
def test_without_the_client_a_name_on_the_hub_says_which_extra_has_it(use, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UsageError, match="names on the Hub need huggingface_hub") as caught:
        use()
    assert caught.value.hint == 'pip install "token-packer[hub]"'


REFUSALS = [
    ("tiny/none", "no file or folder here, and not a repository that is visible at http", "check the spelling"),
    ("tiny/chat@v9", "tokenizer tiny/chat@v9: the repository has no such revision", "see its branches and tags"),
    ("tiny/gated", "its owners decide who has access", "ask for access at http"),
    ("tiny/private", "no file or folder here, and not a repository that is visible", "check the spelling"),
    ("tiny/bare", "the repository has no tokenizer.json", "AutoTokenizer.from_pretrained('tiny/bare')"),
    ("ti--ny/x", "Cannot have -- or", "a name on the Hub is ORG/NAME"),
]


@pytest.fixture
def refusing(hub):
    tokenizer = files_of(FILES / "tokenizer")
    hub.commit("model", "tiny/gated", tokenizer, access="gated")
    hub.commit("model", "tiny/private", tokenizer, access="private")
    hub.commit("model", "tiny/bare", {"config.json": b"{}"})
    return hub


@pytest.mark.parametrize(("tokenizer", "said", "hint"), REFUSALS)
def test_what_the_hub_refuses_is_said_with_a_way_out(refusing, tokenizer, said, hint, tmp_path):
    with pytest.raises(PackerError, match=said) as caught:
        build(of_hub("data/a.jsonl", tokenizer), tmp_path / "cache", jobs=1)
    assert str(caught.value.hint).startswith(hint)
    assert caught.value.exit_code == (2 if "--" in tokenizer else 3)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("name", ["tiny/gated", "tiny/private"])
def test_a_token_opens_what_it_may(refusing, name, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    build(of_hub("data/a.jsonl", name), tmp_path / "cache", jobs=1)
    assert manifest_of(tmp_path / "cache")["totals"]["kept"] == 4


def test_a_data_set_that_is_not_there_is_distinguished_from_a_file_that_is_not(hub, tmp_path):
    for path, said in (
        (f"{DATA}/data/no.jsonl", "no such data file"),
        (f"{DATA}/*.csv", "no file matches"),
        (f"{DATA}", "matches 3 data files"),
        ("hf://datasets/tiny/none/a.jsonl", "not a repository that is visible"),
        (f"{DATA}@v9/data/a.jsonl", "has no such revision"),
    ):
        recipe = make_recipe({**to_json(of_hub()), "sources": [{"path": path}]})
        with pytest.raises(InputError, match=said):
            build(recipe, tmp_path / "cache", jobs=1)


def test_a_hub_that_answers_with_an_error_is_one_that_does_not_answer(hub, monkeypatch):
    monkeypatch.setattr(hub, "answer", lambda *_: (503, {}, b""))
    with pytest.raises(InputError, match="does not answer: it answers HTTP 503"):
        pin(tokenizer_name("tiny/chat"))


def test_a_hub_that_says_nothing_is_not_waited_for(hub, monkeypatch):
    from huggingface_hub import constants

    said = threading.Event()
    answer = hub.answer

    def late(*request):
        said.wait(timeout=20)
        return answer(*request)

    monkeypatch.setattr(hub, "answer", late)
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.2)
    with pytest.raises(InputError, match=r"does not answer: .*timed out"):
        pin(tokenizer_name("tiny/chat"))
    said.set()


def test_a_cache_that_cannot_be_written_is_an_error_of_the_disk(hub, tmp_path):
    (tmp_path / "hub").write_text("a file where the cache should be")
    with pytest.raises(StorageError, match="cannot be stored in"):
        fetch_data(data_name(f"{DATA}/data/a.jsonl"))


def test_a_recipe_in_another_folder_keeps_names_of_the_hub(hub, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    recipe = tmp_path / "elsewhere" / "recipe.yaml"
    recipe.write_text(f"sources: [{{path: {DATA}/data/a.jsonl}}]\ntokenizer: tiny/chat\n", "utf-8")
    loaded = load_recipe(recipe)
    assert (loaded.sources[0].path, loaded.tokenizer) == (f"{DATA}/data/a.jsonl", "tiny/chat")


def test_the_command_line_takes_them(hub):
    told = run("build", f"{DATA}/data/a.jsonl", "--tokenizer", "tiny/chat", "-o", "cache").stderr
    notes = [line.split(" is commit ")[0] for line in told.splitlines()]
    assert notes == [f"note: {DATA}", "note: tokenizer tiny/chat"]
