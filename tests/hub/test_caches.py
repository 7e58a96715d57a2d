"""Caches of the Hub: opened by every command and reader, pushed in one commit; with the Hub's real client."""

import re
import shutil
from pathlib import Path

import pytest
from command_line import assert_refused, fields, run
from small_hub import TOKEN, files_of

from packer import push_cache
from packer.audit import verify
from packer.errors import BusyError, CheckError, InputError
from packer.store.cache import Cache

NAME = "hf://datasets/tiny/cache"

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the client, by its own doing


@pytest.fixture
def built(starter_cache):
    """A cache's files, by their names in it."""
    return {path: content for path, content in files_of(starter_cache).items() if not path.startswith(".packer/")}


@pytest.fixture
def pushed(hub, built):
    """The commit of a data set that is a cache."""
    return hub.commit("dataset", "tiny/cache", {**built, "README.md": b"About.", "more.bin": b"unnamed"})


def test_every_command_takes_a_cache_of_the_hub(hub, pushed, starter_cache, tmp_path):
    of = f"{NAME}@{pushed}"
    assert fields("verify", of, "--full")["ok"]
    fetched = {entry.partition(f"/resolve/{pushed}/")[2] for entry in hub.asked if entry.startswith("GET /datasets/")}
    with Cache.open(starter_cache) as cache:
        assert fetched == {"manifest.json", *cache.manifest.digests}, "what the manifest names, and nothing else"
    hub.asked.clear()
    hub.closed = True
    assert fields("stats", of)["fingerprint"] == fields("stats", starter_cache)["fingerprint"]
    for asked in (
        ["inspect", of, "--block", "1"],
        ["check", of],
        ["diff", of, starter_cache],
        ["report", of, "-o", "page.html"],
        ["export", of, "--to", "datasets", "-o", "exported"],
        ["pack", of, "--block-len", "256", "-o", "shorter"],
    ):
        run(*asked)
    assert verify(tmp_path / "shorter", level="full").ok
    assert not any(path.is_symlink() for path in (tmp_path / "shorter").rglob("*"))
    assert hub.asked == [], "a commit that was fetched needs no network"


def test_a_reader_takes_a_cache_of_the_hub(pushed, starter_cache):
    pytest.importorskip("torch", reason="TORCH MISSING: caches of the Hub are not read")
    from packer import PackedLoader

    theirs, ours = (next(iter(PackedLoader(name, global_batch_size=2))) for name in (NAME, starter_cache))
    for one, other in zip(theirs, ours, strict=True):
        assert one["input_ids"].equal(other["input_ids"])


def test_a_cache_may_lie_in_a_folder_of_a_data_set(hub, built):
    hub.commit("dataset", "tiny/many", {f"v1/packed/{path}": content for path, content in built.items()}, branch="b")
    with Cache.open("hf://datasets/tiny/many@b/v1/packed") as cache:
        assert cache.manifest.totals.kept == 197


def test_what_is_fetched_is_compared_with_the_manifest_and_not_kept_if_it_is_something_else(hub, built):
    shard = next(path for path in built if path.startswith("blocks/"))
    other = built[shard][:-1] + bytes([built[shard][-1] ^ 1])
    commit = hub.commit("dataset", "tiny/cache", {**built, shard: other})
    for _ in range(2):
        with pytest.raises(CheckError, match=f"{shard} is damaged: expected sha256"):
            Cache.open(NAME)
    hub.repositories["dataset", "tiny/cache"]["commits"][commit][shard] = built[shard]  # on its way it was damaged
    assert Cache.open(f"{NAME}@{commit}").manifest.totals.kept == 197
    hub.commit("dataset", "tiny/cache", {path: content for path, content in built.items() if path != shard})
    with pytest.raises(CheckError, match=f"has no {shard}"):
        Cache.open(NAME)


def test_what_is_no_cache_is_said_to_be_none(hub, tmp_path):
    with pytest.raises(InputError, match=r"tiny/talk@\w+ is not a cache: it has no manifest"):
        Cache.open("hf://datasets/tiny/talk")
    assert_refused("not a repository that is visible", "stats", "hf://datasets/tiny/none", exit_code=3)
    assert_refused("packer does not write to hf://", "build", "x", "--tokenizer", "y", "-o", NAME, exit_code=2)


def test_links_lead_out_of_a_cache_to_the_files_of_the_hubs_client_alone(pushed, tmp_path):
    folder = Cache.open(NAME).folder
    shard = next((folder / "blocks").iterdir())
    shutil.copy(shard, tmp_path / "elsewhere")
    shard.unlink()
    shard.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckError, match="is a link that leads out of the cache"):
        Cache.open(folder)


@pytest.fixture
def logged_in(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return hub


def there(hub):
    """The files of the data set now."""
    found = hub.repositories["dataset", "tiny/cache"]
    return found["commits"][found["branches"]["main"]]


def posted(hub):
    return [entry.removeprefix("POST /").removeprefix("api/") for entry in hub.asked if entry.startswith("POST")]


def test_a_cache_is_pushed_in_one_commit_with_its_card_and_opened_again(logged_in, starter_cache, built):
    hub = logged_in
    told = fields("push", starter_cache, "tiny/cache")
    assert posted(hub) == [
        "repos/create",
        "validate-yaml",
        "datasets/tiny/cache/preupload/main",
        "datasets/tiny/cache.git/info/lfs/objects/batch",
        "datasets/tiny/cache/commit/main",
    ]
    assert told["is_private"] and hub.repositories["dataset", "tiny/cache"]["access"] == "private"
    files = there(hub)
    assert {*files} == {*built, "README.md", ".gitattributes"} and all(files[path] == built[path] for path in built)
    assert (told["num_files"], told["num_bytes"]) == (
        len(built) + 1,
        sum(len(files[path]) for path in files if path != ".gitattributes"),
    )
    assert fields("verify", told["name"], "--full", "--expect", told["fingerprint"])["ok"]
    assert "next: packer verify hf://datasets/tiny/cache@" in run("push", starter_cache, "tiny/cache").stdout


def test_a_second_push_uploads_nothing(logged_in, starter_cache):
    push_cache(starter_cache, "tiny/cache", public=True)
    assert logged_in.repositories["dataset", "tiny/cache"]["access"] == "open"
    logged_in.asked.clear()
    again = push_cache(starter_cache, NAME, replaces=True)
    assert again.num_files == 0 and posted(logged_in) == []
    assert "already exists; nothing was uploaded" in run("push", starter_cache, "tiny/cache").stdout


def test_a_push_that_broke_off_is_seen_by_nobody_and_goes_on(logged_in, starter_cache, built):
    large = [path for path in built if path.endswith(".arrow")]
    logged_in.most_uploads = len(large) - 1
    with pytest.raises(InputError, match="it answers HTTP 400") as caught:
        push_cache(starter_cache, "tiny/cache")
    assert "push again when it answers" in str(caught.value.hint)
    assert {*there(logged_in)} == {".gitattributes"}
    logged_in.most_uploads = None
    logged_in.asked.clear()
    push_cache(starter_cache, "tiny/cache")
    assert sum(entry.startswith("PUT") for entry in logged_in.asked) == 1, "of the large files, what was missing"
    assert {*built} < {*there(logged_in)}


def test_the_card_says_what_the_cache_is_and_its_lines_read_it(logged_in, starter_cache):
    push_cache(starter_cache, "tiny/cache")
    card = there(logged_in)["README.md"].decode()
    with Cache.open(starter_cache) as cache:
        manifest, fingerprint = cache.manifest, cache.fingerprint
    totals = manifest.totals
    said = [fingerprint, manifest.content_fingerprint, manifest.recipe_fingerprint, f"`{manifest.recipe['tokenizer']}`"]
    said += [each.sha256 for each in manifest.model.files] + [each.sha256[:12] for each in manifest.inputs]
    said += [f"{totals.documents:,} documents with {totals.tokens:,} tokens", *map("| `{}` |".format, totals.rejected)]
    said += [f"| `{split}` |" for split in ("train", "eval")]
    for text in said:
        assert text in card
    lines = card.partition("```python\n")[2].partition("```")[0]
    assert len(lines.splitlines()) == 4  # and one is empty
    pytest.importorskip("torch", reason="TORCH MISSING: caches of the Hub are not read")
    names = {}
    exec(compile(lines, "card", "exec"), names)
    assert names["step"].index > 0


def test_names_in_a_card_are_no_markdown(logged_in, tmp_path):
    """Who names a file names it and nothing else."""
    import packer

    path = tmp_path / "a`|](http:b)<b>.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' * 9)
    run("init", tmp_path / "s")
    packer.build(path, tmp_path / "cache", tokenizer=tmp_path / "s" / "tokenizer")
    push_cache(tmp_path / "cache", "tiny/cache")
    (line,) = [
        line for line in there(logged_in)["README.md"].decode().splitlines() if line.endswith("` |") and "(http" in line
    ]
    assert line.count("`") == 6 and len(line.replace("\\|", "").split("|")) == 9


def test_another_cache_is_replaced_only_if_that_is_asked_for(logged_in, starter_cache, built, tmp_path):
    hub = logged_in
    hub.commit("dataset", "tiny/cache", {"README.md": b"Mine."})
    push_cache(starter_cache, "tiny/cache")
    run("pack", starter_cache, "--block-len", "256", "-o", tmp_path / "shorter")
    before = there(hub)
    assert_refused("tiny/cache contains another cache", "push", tmp_path / "shorter", "tiny/cache", exit_code=2)
    assert there(hub) == before
    run("push", tmp_path / "shorter", "hf://datasets/tiny/cache/shorter")  # as the hint says
    assert {path for path in there(hub) if not path.startswith("shorter/")} == {*before}
    run("push", tmp_path / "shorter", "tiny/cache", "--replace")  # and so
    for of in (NAME, f"{NAME}/shorter"):
        assert fields("verify", of)["fingerprint"] == fields("stats", tmp_path / "shorter")["fingerprint"]
    blocks = {path for path in there(hub) if path.startswith("blocks/")}
    assert blocks and not blocks & {*built}, "the old one's are gone"
    assert there(hub)["README.md"] == b"Mine."


def test_what_somebody_else_wrote_stays(logged_in, starter_cache):
    mine = {"README.md": b"Mine.", "documents/mine.pdf": b"mine"}
    logged_in.commit("dataset", "tiny/cache", mine)
    assert "its README.md existed before" in run("push", starter_cache, "tiny/cache").stdout
    assert mine.items() <= there(logged_in).items()


def test_nothing_is_pushed_of_a_cache_that_is_damaged_or_not_finished(logged_in, starter_cache, tmp_path):
    folder = shutil.copytree(starter_cache, tmp_path / "copy")
    shard = next((folder / "blocks").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    assert_refused("is damaged, so it is not pushed", "push", folder, "tiny/cache", exit_code=1)
    (folder / "manifest.json").unlink()
    assert_refused("its build did not finish", "push", folder, "tiny/cache", exit_code=3)
    assert logged_in.asked == []


def test_a_push_without_a_token_or_beside_another_is_refused(hub, starter_cache, monkeypatch):
    monkeypatch.setattr(hub, "closed", True)
    assert_refused("/cache: http://127.0.0.1", "push", starter_cache, "tiny/cache", exit_code=3)
    monkeypatch.setattr(hub, "closed", False)
    with pytest.raises(InputError, match=r"the Hub refuses it \(HTTP 401\)") as caught:
        push_cache(starter_cache, "tiny/cache")
    assert "hf auth login" in str(caught.value.hint)
    assert_refused("expected hf://datasets/ORG/NAME", "push", starter_cache, "cache", exit_code=2)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.commit("dataset", "tiny/cache", {})
    change = hub._change

    def changed(name, repository, rest, sent):
        if rest[0] == "preupload":
            hub.commit("dataset", name, {"other": b"push"})
        return change(name, repository, rest, sent)

    monkeypatch.setattr(hub, "_change", changed)
    with pytest.raises(BusyError, match="somebody else is changing it"):
        push_cache(starter_cache, "tiny/cache")
    assert {*there(hub)} == {"other"}


def test_the_session_of_the_page_runs(logged_in, tmp_path):
    page = Path(__file__).parents[2] / "docs" / "how-to" / "hub.md"
    commands = re.findall(r"^\$ packer (.*)$", page.read_text("utf-8"), re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        run(*command.replace("ORG/", "tiny/").split())
    assert len(posted(logged_in)) == 5
