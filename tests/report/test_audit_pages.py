"""The pages of `diff` and `lint` say what their `--json` says, and whatever they are about is text."""

import re
from dataclasses import asdict

from command_line import assert_refused, fields, run
from report_page import Page

from packer.display import visible
from packer.report import diff_page, lint_page


def texts_in(value):
    """Every text of a report, however deep."""
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple):
        for each in value:
            yield from texts_in(each)
    elif isinstance(value, str):
        yield value


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


def test_a_diff_page_has_every_text_of_the_report(hostile_diff):
    page = assert_inert(diff_page(hostile_diff))
    text = page.text().replace("↵", "")
    report = asdict(hostile_diff)
    named = {"old", "new", "fingerprint", "content_fingerprint", "recipe_fingerprint", "causes", "meaning"}
    assert report["moved"] and report["documents"] and report["totals"] and report["examples"] and report["recipe"]
    values = [*texts_in([each for name, each in report.items() if name not in named])]
    values = [each for each in values if each not in FIELDS]
    assert len(values) > 20
    for value in values:
        assert visible(value if len(value) != 64 else value[:16]) in text, value
    assert "\\u202e&amp;.jsonl" in text and "{{ 7 * 7 }}" in text


FIELDS = {
    *("key", "old", "new", "split", "only_old", "only_new", "both", "rows_changed", "rows_only_old", "rows_only_new"),
    *("rows", "first", "input", "row", "documents", "code", "reason", "doc_id", "num_tokens", "num_trained", "before"),
    *(
        "side",
        "margin",
        "num_differing",
        "text",
        "input_ids",
        "num_only_trained",
        "only_trained",
        "what",
        "at",
        "same_text",
        "ids",
    ),
}
"""Names of fields, and what the page says in other words."""


def test_a_lint_page_has_every_finding_whole(hostile_lint):
    page = assert_inert(lint_page(hostile_lint))
    text = page.text().replace("↵", "").replace("\N{NO-BREAK SPACE}", "")
    assert hostile_lint.findings and any(each.examples for each in hostile_lint.findings)
    for finding in hostile_lint.findings:
        for part in (finding.code, finding.message, finding.hint or ""):
            assert visible(part) in text
        for example in finding.examples:
            for part in (example.label, example.text, example.note):
                assert visible(part) in text
            assert "".join(example.parts) == example.text
    assert hostile_lint.counted in text and "\\u202e&amp;.jsonl" in text


def test_what_is_marked_is_what_a_finding_is_about(hostile_lint):
    marked = [mark for tag, mark in Page(lint_page(hostile_lint)).texts if tag == "mark"]
    examples = [each for finding in hostile_lint.findings for each in finding.examples if each.mark is not None]
    assert examples
    for example in examples:
        start, stop = example.mark
        assert any(visible(example.text[start : max(stop, start + 1)]).split("\n")[0] in mark for mark in marked)


def test_the_commands_write_a_page_and_answer_as_without_it(hostile_cache, starter_cache, starter, tmp_path):
    path = tmp_path / "page.html"
    plain = fields("diff", hostile_cache, starter_cache, exit_code=1)
    assert fields("diff", hostile_cache, starter_cache, "--html", path, exit_code=1) == plain
    assert "packer diff" in Page(path.read_bytes()).text()
    said = run("diff", starter_cache, starter_cache, "--html", path, "--no-pager").stdout
    assert said.startswith(f"wrote {path}") and said.count("\n") == 1
    assert "The same bytes." in Page(path.read_bytes()).text()
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
