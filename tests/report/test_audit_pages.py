"""The pages of `diff` and `lint` say what the commands say, and whatever they are about is text."""

import re

from command_line import assert_refused, fields, run
from hostile_rows import FILE_NAME
from report_page import Page

from packer.report import text_page


def assert_inert(content):
    """Nothing of a page is anything but text, and its policy names its own script and style alone."""
    page = Page(content)
    assert len(page.of("script")) == len(page.of("style")) == 1
    assert not {"img", "iframe", "object", "embed", "base", "link", "b"} & {tag for tag, _ in page.elements}
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "srcdoc", "src")]
        assert (attributes.get("href") or "#").startswith("#")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", content.decode())
    policy = page.policy()
    assert [policy["script-src"], policy["style-src"]] == page.hashes() and policy["default-src"] == "'none'"
    return page


def test_a_page_says_line_by_line_what_the_command_says(hostile_cache, starter_cache, starter, tmp_path):
    path = tmp_path / "page.html"
    source = str(hostile_cache.parent / FILE_NAME).replace("[", "[[]")
    asked = (
        (1, "diff", hostile_cache, starter_cache),
        (0, "lint", source, "--schema", "messages", "--tokenizer", starter / "tokenizer"),
    )
    for exit_code, *command in asked:
        said = run(*command, "-v", "--no-pager", exit_code=exit_code, env={"COLUMNS": "100"}).stdout
        assert said.count("\n") > 20
        run(*command, "--html", path, exit_code=exit_code)
        assert said in assert_inert(path.read_bytes()).text().replace("\N{NO-BREAK SPACE}", " ")


def test_what_is_marked_in_a_terminal_is_marked_on_a_page():
    page = assert_inert(text_page("diff", title="<b>", lines=[[("old <i> ", ""), ("\x1b[2J", "red bold")], []]))
    assert [attributes["class"] for attributes in page.of("span")] == ["red bold"]
    assert "old <i> \\x1b[2J\n\n" in page.text()


def test_the_commands_write_a_page_and_answer_as_without_it(hostile_cache, starter_cache, starter, tmp_path):
    path = tmp_path / "page.html"
    plain = fields("diff", hostile_cache, starter_cache, exit_code=1)
    assert fields("diff", hostile_cache, starter_cache, "--html", path, exit_code=1) == plain
    assert "packer diff" in Page(path.read_bytes()).text()
    said = run("diff", starter_cache, starter_cache, "--html", path, "--no-pager").stdout
    assert said.startswith(f"wrote {path}") and said.count("\n") == 1
    assert "the same bytes" in Page(path.read_bytes()).text()
    asked = ("lint", "--tokenizer", starter / "tokenizer", "--html", path)
    assert fields(*asked)["command"] == "lint" and "packer lint" in Page(path.read_bytes()).text()
    assert run(*asked, "-q").stdout == ""


def test_a_page_takes_the_place_of_a_page_and_of_nothing_else(starter_cache, starter, tmp_path):
    kept = tmp_path / "rows.jsonl"
    kept.write_text('{"text": "of value"}\n', "utf-8")
    (tmp_path / "link.html").symlink_to(kept)
    (tmp_path / "empty.html").touch()
    manifest = (starter_cache / "manifest.json").read_bytes()
    commands = (
        ("report", starter_cache, "-o"),
        ("diff", starter_cache, starter_cache, "--html"),
        ("lint", "--tokenizer", starter / "tokenizer", "--html"),
    )
    for command in commands:
        for place in (kept, tmp_path / "link.html", starter / "tokenizer" / "tokenizer.json", tmp_path):
            assert_refused(str(place), *command, place, exit_code=2)
        run(*command, tmp_path / "empty.html")
        run(*command, tmp_path / "empty.html")
    for command in commands[:2]:
        for name in ("manifest.json", "new.html"):
            assert_refused("is in the cache", *command, starter_cache / name, exit_code=2)
    assert kept.read_text("utf-8") == '{"text": "of value"}\n' and not (starter_cache / "new.html").exists()
    assert (starter_cache / "manifest.json").read_bytes() == manifest
