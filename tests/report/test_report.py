"""A report: it says what the cache says, holds exactly its tokens, and whatever it is about is text."""

import json
import re
from importlib import resources
from urllib.parse import urlencode

import numpy as np
import preference_rows
import pytest
from command_line import assert_refused, fields, run
from hostile_rows import FILE_NAME, HOSTILE
from hypothesis import given
from hypothesis import strategies as st
from packed_again import packed_again
from report_page import Page

from packer.audit.stats import stats
from packer.audit.view import view_document
from packer.display import percent
from packer.layout import MASKED
from packer.pipeline.from_python import build
from packer.report import report
from packer.report.facts import Documents, _lengths, histograms
from packer.store.cache import Cache
from packer.store.row_tables import read_rejected


def page_of(cache, path):
    report(cache, path)
    return Page(path.read_bytes())


def labels_of(item, tokens):
    """Labels as the page tells them: of each span, ids where it is trained."""
    kinds = [kind for document in item["documents"] for kind, length, *_ in document["spans"] for _ in range(length)]
    return [token if kind == "t" else MASKED for kind, (token, _) in zip(kinds, tokens, strict=True)]


@pytest.mark.parametrize("mode", ["isolated", "stream"])
def test_a_page_holds_the_ids_and_labels_of_its_blocks(mode, starter_cache, tmp_path):
    pack = {"mode": mode, "block_len": 192} | ({} if mode == "stream" else {"overlong": "split"})
    packed_again(starter_cache, tmp_path / "cache", pack)
    page = page_of(tmp_path / "cache", tmp_path / "page.html")
    with Cache.open(tmp_path / "cache") as cache:
        blocks = cache.blocks("train").read(np.arange(len(cache.blocks("train"))))
    numbers = {urlencode({"block": f"train:{number}"}): number for number in range(len(blocks.input_ids))}
    found = [(key, item, tokens) for key, item, tokens in page.items() if key in numbers]
    assert len(found) > 3
    for key, item, tokens in found:
        assert key == item["key"]
        number = numbers[key]
        ids = [token for token, _ in tokens]
        assert len(ids) + item["num_padding"] == 192
        assert ids == blocks.input_ids[number][: len(ids)].tolist()
        assert labels_of(item, tokens) == blocks.labels[number][: len(ids)].tolist()
        assert (blocks.labels[number][len(ids) :] == MASKED).all()
        for document in item["documents"]:
            slots = blocks.position_ids[number][document["at"] :][: document["length"]]
            assert slots.tolist() == [*range(document["position"], document["position"] + document["length"])]


def test_texts_message_numbers_and_places_are_those_of_inspect(starter_cache, tmp_path):
    *_, (_, item, tokens) = page_of(starter_cache, tmp_path / "page.html").items()
    (shown,) = item["documents"]
    with Cache.open(starter_cache) as cache:
        view = view_document(cache, int(shown["doc_id"]))
    assert "".join(text for _, text in tokens) == "".join(run.text for run in view.runs)
    assert (shown["source"], shown["row"]) == (view.source, view.row)
    spans = [(length, message) for _, length, message in shown["spans"]]
    assert spans == [(run.num_tokens, run.message) for run in view.runs]


def test_a_document_that_a_sample_names_for_several_reasons_is_shown_once(starter, tmp_path):
    build([{"text": "a row by itself"}], tmp_path / "cache", tokenizer=starter / "tokenizer", jobs=1, progress=None)
    items = page_of(tmp_path / "cache", tmp_path / "page.html").items()
    assert [item["kind"] for _, item, _ in items] == ["block", "doc"]
    assert items[1][1]["note"] == "longest document, shortest document, most trained, least trained"


def test_the_figures_of_a_page_are_those_of_stats(starter, tmp_path):
    """Without what rules about rows leave out, which the cache keeps on disk."""
    rows = [{"text": "word " * (n + 1), "kind": n % 3} for n in range(12)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    filters = "filters=[{name: kind, field: kind, in: [0]}]"
    tokenizer = ("--tokenizer", starter / "tokenizer", "--set", filters)
    run("build", tmp_path / "rows.jsonl", *tokenizer, "--block-len", 64, "-o", tmp_path / "cache")
    report(tmp_path / "cache", tmp_path / "page.html")
    found = stats(tmp_path / "cache")
    text = " ".join(Page((tmp_path / "page.html").read_bytes()).text(between=" ").split())
    assert (found.documents, found.totals.blocks) == (4, 1)
    assert f"4 documents of {found.tokens} tokens" in text and "in 1 block of 64." in text
    assert f"rows 12 4 kept documents 4 tokens {found.tokens}" in text
    assert "kind: 8 rows, 66.7 %" in text.replace("\N{NO-BREAK SPACE}", " ")
    ranges = re.findall(r"(\d+(?: to \d+)?) tokens: (\d+) documents?\b", text)
    assert sum(int(count) for _, count in ranges) == found.documents


def test_a_page_names_the_sides_of_a_pair(starter, tmp_path):
    pairs = [preference_rows.pair(n) for n in range(4)]
    cache = preference_rows.built(tmp_path / "cache", pairs, starter / "tokenizer")
    items = [item for _, item, _ in page_of(cache, tmp_path / "page.html").items()]
    sides = {(item["kind"], each["side"]) for item in items for each in item["documents"]}
    assert sides and sides <= {("doc", "chosen"), ("doc", "rejected")}


def test_hostile_rows_names_and_reasons_are_text(hostile_cache, tmp_path):
    with Cache.open(hostile_cache) as cache:
        codes = {line.code for line in read_rejected(cache.folder, cache.manifest)}
    assert {"duplicate", "not_json", "not_utf8", "unknown_role"} <= codes
    content = report(hostile_cache, tmp_path / "page.html").path.read_bytes()
    page = Page(content)
    held = page.items()
    assert len(page.of("script")) == 4 and len(page.of("style")) == 1
    assert not {"img", "iframe", "object", "embed", "base", "link"} & {tag for tag, _ in page.elements}
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "srcdoc", "src")]
        assert (attributes.get("href") or "#").startswith("#")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", content.decode())
    assert "cache <b>" in page.text() and "\\u202e&amp;.jsonl" in page.text()
    texts = [text for _, _, tokens in held for text in ["".join(text for _, text in tokens)] if text]
    for text in HOSTILE:
        assert any(text in each for each in texts)


def test_the_policy_names_exactly_the_script_and_style_of_the_page(hostile_cache, tmp_path):
    page = page_of(hostile_cache, tmp_path / "page.html")
    policy = page.policy()
    assert [policy["script-src"], policy["style-src"]] == page.hashes()
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "connect-src" not in policy and policy["require-trusted-types-for"] == "'script'"


def test_text_has_a_contrast_of_four_and_a_half_in_light_and_dark():
    style = (resources.files("packer.report") / "page.css").read_text("utf-8")
    colors = dict(re.findall(r"--(\w+): light-dark\(([^)]*)\)", style))
    pairs = [(text, back) for text in ("ink", "soft") for back in ("paper", "faint", "trained", "hit")]
    pairs += [(text, back) for text in ("link", "warn", "line") for back in ("paper", "faint")]
    for text, back in pairs:
        for light in (0, 1):
            bright = sorted(_luminance(colors[name].split(", ")[light]) for name in (text, back))
            assert (bright[1] + 0.05) / (bright[0] + 0.05) >= 4.5, (text, back, light)


def _luminance(color):
    digits = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_page_stays_within_its_bytes_and_says_what_it_left_out(starter_cache, tmp_path, monkeypatch):
    whole = report(starter_cache, tmp_path / "whole.html")
    assert whole.items == whole.chosen > 1
    monkeypatch.setattr("packer.report.MAX_BYTES", whole.num_bytes - 1000)
    found = report(starter_cache, tmp_path / "cut.html")
    assert 0 < found.items < found.chosen == whole.chosen
    assert found.num_bytes == (tmp_path / "cut.html").stat().st_size < whole.num_bytes - 1000
    page = Page((tmp_path / "cut.html").read_bytes())
    assert len(page.items()) == found.items
    assert f"The first {found.items} of {found.chosen}" in page.text()


def test_the_same_cache_gives_the_same_bytes(few_blocks, tmp_path):
    pages = [report(few_blocks, tmp_path / name).path.read_bytes() for name in ("a.html", "b.html")]
    assert pages[0] == pages[1]


def test_a_cache_without_blocks_has_a_page_of_documents(starter_cache, tmp_path):
    packed_again(starter_cache, tmp_path / "cache", {"mode": "none"})
    items = page_of(tmp_path / "cache", tmp_path / "page.html").items()
    assert {item["kind"] for _, item, _ in items} == {"doc"}


def test_the_heading_says_what_share_of_the_tokens_is_in_no_block(starter_cache, tmp_path):
    packed_again(starter_cache, tmp_path / "cache", {"block_len": 128, "overlong": "reject"})
    report(tmp_path / "cache", tmp_path / "page.html")
    found = stats(tmp_path / "cache")
    share = percent(found.cut_tokens / found.tokens).replace(" ", "\N{NO-BREAK SPACE}")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert f"{share} of the tokens are in no block." in page.partition("<nav")[0]
    report(starter_cache, tmp_path / "page.html")
    assert "in no block" not in (tmp_path / "page.html").read_text("utf-8").partition("<nav")[0]


@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=50))
def test_bins_of_lengths_are_whole_numbers_that_hold_every_document(lengths):
    plot = _lengths(np.array(lengths, np.int32), "")
    assert sum(plot.counts) == len(lengths)
    assert plot.counts[0] and plot.counts[-1], "no empty bins at the ends"
    edges = [int(edge.replace(",", "")) for edge in plot.edges]
    assert edges == sorted(set(edges)) and edges[0] <= min(lengths) and max(lengths) < edges[-1]


def test_plots_count_every_document_and_block(few_blocks):
    with Cache.open(few_blocks) as cache:
        found, documents = stats(few_blocks), Documents.of(cache)
        plots = histograms(cache, documents)
    assert [sum(plot.counts) for plot in plots] == [found.documents, found.documents, found.totals.blocks]
    assert all(len(plot.edges) == len(plot.counts) + 1 for plot in plots)


def test_reasons_are_counted_and_shown_with_their_rows(hostile_cache, tmp_path):
    text = page_of(hostile_cache, tmp_path / "page.html").text()
    with Cache.open(hostile_cache) as cache:
        lines = list(read_rejected(cache.folder, cache.manifest))
    codes = [line.code for line in lines]
    for code in set(codes):
        assert re.search(rf"{code}\s*{codes.count(code)} rows", text), code
        assert next(line.reason for line in lines if line.code == code).split(":")[0] in text
    assert FILE_NAME.replace("\u202e", "\\u202e") in text
    assert '{"broken ' not in text, "the rows themselves are in a file outside of the cache"


def test_the_command_says_what_it_wrote(few_blocks, tmp_path):
    path = tmp_path / "page.html"
    found = fields("report", few_blocks, "-o", path)
    assert found["command"] == "report" and found["num_bytes"] == path.stat().st_size
    assert found["items"] == found["chosen"] == len(Page(path.read_bytes()).items())
    assert str(path) in run("report", few_blocks, "-o", path).stdout
    assert run("report", few_blocks, "-o", path, "-q").stdout == ""


def test_a_page_takes_the_place_of_a_page_and_of_nothing_else(few_blocks, starter, tmp_path):
    kept = tmp_path / "rows.jsonl"
    kept.write_text('{"text": "of value"}\n', "utf-8")
    (tmp_path / "link.html").symlink_to(kept)
    (tmp_path / "empty.html").touch()
    manifest = (few_blocks / "manifest.json").read_bytes()
    command = ("report", few_blocks, "-o")
    for place in (kept, tmp_path / "link.html", starter / "tokenizer" / "tokenizer.json", tmp_path):
        assert_refused(str(place), *command, place, exit_code=2)
    run(*command, tmp_path / "empty.html")
    run(*command, tmp_path / "empty.html")
    for name in ("manifest.json", "new.html"):
        assert_refused("is in the cache", *command, few_blocks / name, exit_code=2)
    assert kept.read_text("utf-8") == '{"text": "of value"}\n' and not (few_blocks / "new.html").exists()
    assert (few_blocks / "manifest.json").read_bytes() == manifest
