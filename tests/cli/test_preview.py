"""`packer preview` and the page it shares with `inspect`."""

import json
import re

import pytest
import twins
from chats import chat
from command_line import fields, run


def row(*texts):
    return json.dumps(chat(*texts))


@pytest.fixture
def rows(tmp_path):
    """Three rows, one of them broken."""
    path = tmp_path / "rows [b].jsonl"
    path.write_text("\n".join([row("Hi", "Hel\nlo", "More?", "[red]Yes[/red]"), "not json", row("Grüße 世界", "Ja")]))
    return path


@pytest.fixture
def tokenizer(starter):
    return starter / "tokenizer"


PAGE = """\
── {path} row 0 · 27 tokens · 12 trained
   doc {doc} · trains messages 1, 3
    <|im_start|>user↵
    Hi<|im_end|>↵
    <|im_start|>assistant↵
 1▌ Hel↵
  ▌ lo<|im_end|>
    ↵
    <|im_start|>user↵
    More?<|im_end|>↵
    <|im_start|>assistant↵
 3▌ [red]Yes[/red]<|im_end|>

── {path} row 1 · the row would be left out: not_json
   {reason}
   the row:
  ! not json
   hint: correct or remove the row; NaN and Infinity are not JSON
"""


def test_the_page_shows_what_is_trained_from_which_message_and_what_is_left_out(rows, tokenizer):
    shown = run("preview", rows, "--tokenizer", tokenizer).stdout
    first, second, _ = fields("preview", rows, "--tokenizer", tokenizer)["rows"]
    (document,) = first["documents"]
    page = PAGE.format(path=rows, doc=document["doc_id"], reason=second["rejected"][0]["reason"])
    counted = page.replace("27 tokens · 12", f"{document['length']} tokens · {document['num_trained']}")
    assert shown.startswith(counted)
    assert "  rows       3  2 kept, 1 rejected\n" in shown
    assert shown.endswith("rows rejected\n  1  not_json  the row is not valid JSON\n")


def test_json_has_the_message_of_every_run(rows, tokenizer):
    found = fields("preview", rows, "--tokenizer", tokenizer, "--ids")
    assert found["inputs"] == [{"path": str(rows), "split": "train", "format": "jsonl", "schema": "messages"}]
    runs = found["rows"][0]["documents"][0]["runs"]
    said = [(run["kind"], run["message"]) for run in runs]
    assert said == [("masked", None), ("trained", 1), ("masked", None), ("trained", 3)]
    assert all(len(run["labels"]) == len(run["input_ids"]) == run["num_tokens"] for run in runs)
    assert found["rows"][1]["excerpts"] == [{"label": "the row", "text": "not json", "mark": [0, 8], "note": ""}]
    assert [bool(row["hint"]) for row in found["rows"]] == [False, True, False]
    assert found["totals"]["rejected"] == {"not_json": 1}
    assert found["totals"]["rows"] == 3


def test_preview_and_inspect_show_the_same_page_of_a_row(rows, tokenizer, tmp_path):
    run("build", rows, "--tokenizer", tokenizer, "-o", tmp_path / "cache", "-j", "1", "-q")
    for number in range(3):
        place = f"{rows.name}:{number}"
        previewed = run("preview", rows, "--tokenizer", tokenizer, "--row", place, "-q").stdout
        inspected = run("inspect", tmp_path / "cache", "--row", place).stdout
        assert previewed.replace("would be", "was").startswith(inspected)
        assert len(inspected.splitlines()) >= 2


def test_the_recipe_is_resolved_as_build_does_it(starter, rows, tmp_path):
    found = fields("preview", "-c", starter / "recipe.yaml", "-n", "1")
    names = ("chat", "tools", "reasoning", "sharegpt", "alpaca")
    assert [entry["path"] for entry in found["inputs"]] == [str(starter / "data" / f"{name}.jsonl") for name in names]
    options = ("--split", "dev", "--set", "supervision.turns=last", "-n", "1")
    found = fields("preview", rows, "-c", starter / "recipe.yaml", *options)
    assert found["inputs"] == [{"path": str(rows), "split": "dev", "format": "jsonl", "schema": "messages"}]
    assert [run["message"] for run in found["rows"][0]["documents"][0]["runs"] if run["kind"] == "trained"] == [3]
    template = tmp_path / "own.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}")
    arguments = ("--tokenizer", starter / "tokenizer", "--template", template, "-n", "1")
    found = fields("preview", rows, *arguments)
    assert found["rows"][0]["documents"][0]["runs"][0]["text"] == "Hi<|im_end|>"


def test_rejected_rows_alone(rows, tokenizer):
    found = fields("preview", rows, "--tokenizer", tokenizer, "--rejected")
    assert [entry["row"] for entry in found["rows"]] == [1]
    assert "would be left out" not in run("preview", rows, "--tokenizer", tokenizer, "--row", f"{rows}:0").stdout


def test_many_messages_are_counted_and_a_few_are_listed(tokenizer, tmp_path):
    many, few = row(*("x" for _ in range(30))), row("Hi", "Hello", "?", "Yes")
    (tmp_path / "a.jsonl").write_text(f"{many}\n{few}\n")
    shown = run("preview", tmp_path / "a.jsonl", "--tokenizer", tokenizer).stdout
    assert "trains 15 messages, 1 to 29\n" in shown
    assert "\n29▌ x<|im_end|>\n" in shown
    assert "trains messages 1, 3\n" in shown


def test_quiet_leaves_out_the_summary_and_verbose_says_how_files_are_read(rows, tokenizer):
    quiet = run("preview", rows, "--tokenizer", tokenizer, "-q").stdout
    last = quiet[quiet.rindex("── ") :]
    assert quiet.endswith(f"  ! not json\n   hint: correct or remove the row; NaN and Infinity are not JSON\n\n{last}")
    assert "kept" not in quiet
    told = run("preview", rows, "--tokenizer", tokenizer, "-v").stdout
    assert told.startswith(f"   {rows} · format jsonl · schema messages · split train\n\n── ")


def test_a_locale_without_the_signs_shows_escapes(rows, tokenizer):
    done = run("preview", rows, "--tokenizer", tokenizer, charset="ascii")
    signs = {" 1\\u258c Hel\\u21b5", "  ! not json", "    Gr\\xfc\\xdfe \\u4e16\\u754c<|im_end|>\\u21b5"}
    assert signs <= set(done.stdout_bytes.decode("ascii").splitlines())
    assert ("\x1b" in done.stdout, done.stderr) == (False, "")


ANNOUNCING = twins.CHATML.replace("'\\n' + (", "'\\n' + ('Answer: ' if message.role == 'assistant' else '') + (")


@pytest.fixture(scope="module")
def announcing(tmp_path_factory):
    """A template that begins answers with a text of its own."""
    return twins.nfc(tmp_path_factory.mktemp("tokenizer"), template=ANNOUNCING)


def test_without_rows_a_plain_chat_shows_what_the_template_does(announcing):
    shown = run("preview", "--tokenizer", announcing, env={"COLUMNS": "2000"}).stdout
    assert shown.startswith("── a plain chat row 0 · ")
    assert " 3▌ Answer: second answer<|im_end|>\n" in shown and " kept, " not in shown
    assert "\n\nwarning[opening_learned]: " in shown
    assert re.search(r"¦Answer: ¦first answer.*\(trained before the answer\)", shown)


def test_a_plain_chat_that_would_be_left_out_ends_with_exit_code_1(tmp_path):
    refused = twins.byte_level(tmp_path, template=twins.NO_TERMINATOR)
    told = run("preview", "--tokenizer", refused, exit_code=1)
    assert "the row would be left out: no_terminator" in told.stdout
    assert "hint: --set supervision.no_terminator=append" in told.stdout
    assert told.stderr == "error: a plain chat would be left out: no_terminator\n"
    found = fields("preview", "--tokenizer", refused, exit_code=1)
    assert (found["error"]["code"], found["inputs"]) == ("check_failed", [])
    assert run("preview", "--tokenizer", refused, "--set", "supervision.no_terminator=append").stderr == ""


def test_json_holds_the_texts_of_findings_whole_with_the_place(announcing):
    (found,) = fields("preview", "--tokenizer", announcing)["findings"]
    assert (found["code"], found["level"]) == ("opening_learned", "warning")
    example = found["examples"][0]
    assert example["text"][slice(*example["mark"])] == "Answer: "


def test_the_examples_of_findings_are_whole_if_all_is_asked_for_and_color_is_off_where_it_is_not_wanted(tmp_path):
    template = "{{- '\x1b[2J" + "Be kind and brief. " * 40 + "' }}" + ANNOUNCING
    asked = ("preview", "--tokenizer", twins.byte_level(tmp_path, template=template))
    short, whole = (run(*asked, *more).stdout.partition("warning[")[2] for more in ((), ("-v",)))
    assert "…" in short and "…" not in whole
    assert whole.count("Be kind") > short.count("Be kind")
    forced, plain = (run(*asked, env={"FORCE_COLOR": "1", **env}).stdout for env in ({}, {"NO_COLOR": "1"}))
    assert "\x1b[1;33m" in forced and "\x1b[2J" not in forced and "\x1b[" not in plain


@pytest.mark.parametrize("columns", [60, 66, 72, 80, 93])
def test_a_key_to_be_copied_stands_beside_its_option(columns, terminal, tmp_path):
    refused = twins.byte_level(tmp_path, template=twins.NO_TERMINATOR)
    lines = run("preview", "--tokenizer", refused, exit_code=1, env={"COLUMNS": str(columns)}).stdout.splitlines()
    assert sum("--set supervision.no_terminator=append" in line for line in lines) == 1


def test_a_preview_says_that_it_applies_no_rules_about_rows(rows, tokenizer):
    words = "the recipe's rules about rows are not applied here"
    assert words in run("preview", rows, "--tokenizer", tokenizer, "--set", "deduplicate.exact=bytes").stdout
    assert words not in run("preview", rows, "--tokenizer", tokenizer).stdout


def test_where_a_prompt_and_its_turn_differ_is_marked(tmp_path):
    template = twins.CHATML.replace("assistant\\n' }}", "assistant\\n\\n' }}")
    refused = twins.byte_level(tmp_path, template=template)
    shown = run("preview", "--tokenizer", refused, exit_code=1).stdout
    assert "the row would be left out: prompt_diverges" in shown
    assert "   the prompt (only in the prompt):\n" in shown and "\n  ! ¦↵\n  ! ¦\n" in shown
    assert "\n  ! ¦¦first answer<|im_end|>↵\n" in shown
