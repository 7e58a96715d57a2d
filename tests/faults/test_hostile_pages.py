"""No text of a manifest or of `rejected.jsonl` becomes anything but text: on pages, in reports, in JSON."""

import hashlib
import json
import re
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from faults.amount import FULL
from faults.forging import put_at, texts_of, write_manifest
from report_page import Page

from packer.audit.stats import stats
from packer.errors import PackerError
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe
from packer_cli.main import cli

PAGE = "<script>alert(1)</script></script></title>\"><img src=x onerror='alert(1)'><a href=javascript:alert(1)>"
TERMINAL = (
    "\x1b]8;;https://evil.example\x07\x1b[2J\x9b1;1H\u202e\u2066\u200f[link=https://evil.example][red]m[/red]\r\n"
)
EVIL = f"hostile{PAGE}{TERMINAL}"
FORBIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
ACTIVE = {"img", "iframe", "object", "embed", "base", "link"}


@pytest.fixture(scope="module")
def hostile(starter: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that has something wherever a manifest may have a text: rules about rows, rejected and unread ones."""
    folder = tmp_path_factory.mktemp("hostile")
    lines = (starter / "data" / "chat.jsonl").read_text("utf-8").splitlines()
    (folder / "rows.jsonl").write_text("\n".join([*lines, lines[0], '{"messages": []}']), "utf-8")
    recipe = {
        "sources": [{"path": str(folder / "rows.jsonl"), "schema": "messages", "columns": {"messages": "messages"}}],
        "tokenizer": str(starter / "tokenizer"),
        "deduplicate": {"exact": "bytes"},
        "pack": {"block_len": 256},
    }
    build(make_recipe(recipe), folder / "cache", jobs=1, fail_above=1)
    return folder / "cache"


@pytest.fixture
def cache(hostile: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(hostile, tmp_path / "cache"))


def manifest_of(cache: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((cache / "manifest.json").read_bytes())
    return manifest


def put(manifest: dict[str, Any], place: tuple[Any, ...]) -> dict[str, Any]:
    """A copy with the hostile text in a place."""
    changed = deepcopy(manifest)
    put_at(changed, place, EVIL)
    return changed


def look(cache: Path, other: Path, *, every: bool) -> str:
    """Run what shows a manifest, and look at all that comes out; returns it."""
    page = cache.parent / "page.html"
    commands: list[tuple[object, ...]] = [("stats", cache), ("stats", cache, "--json"), ("report", cache, "-o", page)]
    if every:
        commands += [
            ("inspect", cache), ("inspect", cache, "--json"), ("check", cache), ("check", cache, "--json"),
            ("verify", cache), ("verify", "--full", "-v", cache, "--json"), ("diff", other, cache), ("stats", cache),
            ("diff", cache, other, "--json"), ("diff", other, cache, "-v"), ("verify", cache, "--expect", EVIL),
        ]  # fmt: skip
    shown = []
    for words in commands:
        page.unlink(missing_ok=True)
        done = CliRunner(env={"COLUMNS": "80"}).invoke(cli, [*map(str, words)])
        for text in (done.stdout, done.stderr):
            assert FORBIDDEN.search(text) is None, (words, text)
            assert not any(line.startswith(("---", "# forged", "m")) for line in text.splitlines()), (words, text)
        if "--json" in words and done.exit_code in (0, 1):
            assert json.loads(done.stdout)["schema"] == 1
        shown.append(done.stdout)
        if page.exists():
            shown.append(inert(page.read_bytes()))
    return "".join(shown)


def inert(content: bytes) -> str:
    """The text of a page, in which nothing but packer's own scripts could run."""
    page = Page(content)
    assert not (found := ACTIVE & {tag for tag, _ in page.elements}), found
    running = [attributes for attributes in page.of("script") if attributes.get("type") != "text/plain"]
    assert len(running) <= 2 and page.hashes()[0] == page.policy()["script-src"]
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "srcdoc", "style")]
        assert attributes.get("href", "#").startswith("#")
    assert FORBIDDEN.search(content.decode()) is None
    for _, item, _ in page.items():
        assert FORBIDDEN.search(item["title"] + item["note"]) is None
    return page.text()


def is_read(cache: Path, manifest: dict[str, Any]) -> bool:
    write_manifest(cache, manifest)
    try:
        stats(cache)
    except PackerError:
        return False
    return True


@pytest.mark.slow
def test_every_text_of_a_manifest_is_text_wherever_it_is_shown(cache: Path, hostile: Path) -> None:
    """Each alone. In the small part a third of them; all at once are in the next test."""
    manifest = manifest_of(cache)
    found = [*texts_of(manifest, new_key=EVIL)]
    for place in found[:: 1 if FULL else 3]:
        write_manifest(cache, put(manifest, place))
        look(cache, hostile, every=FULL)
    assert len(found) > 60 and {"schema", "versions"} <= {key for place in found for key in place}


def test_all_texts_that_may_be_anything_are_text_at_once(cache: Path, hostile: Path) -> None:
    """Those that a reader takes as they are, and the lines of `rejected.jsonl` with them."""
    manifest = manifest_of(cache)
    free = [place for place in texts_of(manifest, new_key=EVIL) if is_read(cache, put(manifest, place))]
    merged = manifest
    for place in free:
        # What the recipe says of packing and reading decides how the cache is read.
        is_rule = place[:2] in (("recipe", "pack"), ("recipe", "read"))
        if not is_rule and is_read(cache, changed := put(merged, place)):
            merged = changed
    lines = [json.loads(line) for line in (cache / "rejected.jsonl").read_text("utf-8").splitlines()]
    assert len(lines) > 1
    lines = [line | {"code": EVIL, "reason": EVIL, "source": EVIL} for line in lines]
    ledger = "".join(json.dumps(line) + "\n" for line in lines).encode()
    (cache / "rejected.jsonl").write_bytes(ledger)
    write_manifest(cache, merged | {"rejected_sha256": hashlib.sha256(ledger).hexdigest()})
    shown = look(cache, hostile, every=True)
    assert shown.count("hostile<script>alert(1)</script>") > 20, "it is shown, not dropped"
