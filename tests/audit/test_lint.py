"""The template report: each finding where a small template earns it, and only there."""

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import twins
from hints import settings_in

from packer.audit.lint.codes import CODES
from packer.audit.lint.lint_report import LintReport, lint
from packer.recipe.recipe import make_recipe

FULL = r"""{%- if tools %}{{ '<|im_start|>tools\n' + tools | tojson + '<|im_end|>\n' }}{% endif %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.reasoning_content %}{{ '<think>\n' + m.reasoning_content + '\n</think>\n' }}{% endif %}
{{- m.content or '' }}
{%- for call in m.tool_calls or [] %}{{ '\n' + call.function | tojson }}{% endfor %}
{{- '<|im_end|>' }}
{{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
"""Renders everything a row can say, and changes nothing of it."""

CONTENT = "{{- m.content or '' }}"
PROMPT = r"{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

Folder = Callable[..., Path]


def changed(old: str, new: str, template: str = FULL) -> str:
    assert template.count(old) == 1
    return template.replace(old, new)


def of(folder: Path, *overrides: str, sources: list[dict[str, str]] | None = None, num_rows: int = 200) -> LintReport:
    values: dict[str, Any] = {"tokenizer": str(folder), "sources": sources or []}
    return lint(make_recipe(values, overrides), num_rows=num_rows)


def codes(report: LintReport) -> list[str]:
    return [finding.code for finding in report.findings]


def byte_level(template: str | None, **options: Any) -> Folder:
    return lambda folder: twins.byte_level(folder, template=template, **options)


EMPTY_REASONING = changed("{%- if m.reasoning_content %}{{ '<think>\\n' + m.reasoning_content", "{%- if m.role == 'assistant' %}{{ '<think>\\n' + (m.reasoning_content or '')")  # fmt: skip


def with_eos(template: str, eos: str) -> Folder:
    def write(folder: Path) -> Path:
        twins.byte_level(folder, template=template)
        config = folder / "tokenizer_config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"eos_token": eos}))
        return folder

    return write


def of_class(twin: Folder, name: str) -> Folder:
    def write(folder: Path) -> Path:
        twin(folder)
        config = folder / "tokenizer_config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"tokenizer_class": name}))
        return folder

    return write


EOS_AT_THE_END = FULL + "{%- if not add_generation_prompt %}{{ '<|endoftext|>' }}{% endif %}"

DIVERGES = byte_level(changed(PROMPT, PROMPT.replace(r"\n'", r"\n\n'")))
ENDLESS = byte_level(twins.NO_TERMINATOR)

CASES: dict[str, Folder] = {
    "no_template": byte_level(None),
    "template_refused": byte_level(changed("<|im_start|>tools", "<|tools|>").replace("'<|im_start|>' + m.role", "'<|' + m.role + '|>'")),
    "plain_chat_refused": byte_level("{{ raise_exception('never') }}"),
    "history_rewritten": byte_level(twins.QWEN3_LIKE),
    "tokenizer_read_otherwise": of_class(twins.sentencepiece_like, "LlamaTokenizer"),
    "opening_learned": byte_level(changed(CONTENT, "{{- 'Answer: ' if m.role == 'assistant' }}{{- m.content or '' }}")),
}  # fmt: skip


class Cases:
    """The folder and the report of each case, made once for all tests that only read them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.report_of = functools.cache(of)

    def folder(self, code: str) -> Path:
        """The folder of a case; cases of one template share theirs."""
        folder = self._folder / next(other for other, case in CASES.items() if case is CASES[code])
        return folder if folder.exists() else CASES[code](folder)

    def report(self, code: str, *overrides: str) -> LintReport:
        return self.report_of(self.folder(code), *overrides)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    return Cases(tmp_path_factory.mktemp("cases"))


OF_ROWS = {"rows_rejected", "rows_unread"}


@pytest.mark.parametrize("code", CASES)
def test_a_template_that_earns_a_finding_gets_it(code: str, cases: Cases) -> None:
    report = cases.report(code)
    assert code in codes(report), codes(report)
    assert len(set(codes(report))) == len(codes(report)), "a code is told twice"


def test_of_rows_only_what_they_have_is_reported(tmp_path: Path) -> None:
    folder = byte_level(changed(CONTENT, "{{- m.content or '' if m.role != 'system' }}"))(tmp_path / "tokenizer")
    assert codes(of(folder, sources=write(tmp_path / "plain.jsonl", chat("Hi", "Hello")))) == []
    row = {"messages": [{"role": "system", "content": "Be kind."}, *chat("Hi", "Hello")["messages"]]}
    report = of(folder, sources=write(tmp_path / "rows.jsonl", row, chat("Hi", "Hello")))
    assert codes(report) == ["rows_rejected"]


def test_of_rewritten_history_only_what_the_rows_have_is_reported(cases: Cases, tmp_path: Path) -> None:
    folder = cases.folder("history_rewritten")
    assert codes(of(folder, sources=write(tmp_path / "short.jsonl", chat("Hi", "Hello")))) == []
    report = of(folder, sources=write(tmp_path / "long.jsonl", chat("Hi", "Hello", "And?", "Fine")))
    assert codes(report).count("history_rewritten") == 1
    assert "leaves out their reasoning" in finding(report, "history_rewritten").message


def test_every_code_has_a_template_that_earns_it() -> None:
    assert {*CASES, *OF_ROWS} == set(CODES)


def test_a_template_that_renders_everything_as_it_is_gets_no_finding_but_its_terminator(tmp_path: Path) -> None:
    assert codes(of(twins.byte_level(tmp_path / "tokenizer", template=FULL))) == []


def test_findings_come_by_level_and_in_the_order_of_the_table(tmp_path: Path) -> None:
    folder = twins.byte_level(tmp_path / "tokenizer", template="{{- 'Hi' }}" + twins.QWEN3_LIKE)
    sources = write(tmp_path / "rows.jsonl", chat("Hi", "Hello", "And?", "Fine"), chat("Hi"))
    report = of(folder, "supervision.history_rewrite=exact", sources=sources)
    levels = [finding.level for finding in report.findings]
    assert levels == sorted(levels, key=("error", "warning", "note").index)
    assert set(levels) == {"warning", "note"}
    for level in ("error", "warning", "note"):
        own = [finding.code for finding in report.findings if finding.level == level]
        assert own == sorted(own, key=list(CODES).index)
        assert report.count(level) == len(own)


# -- what a finding shows and says -----------------------------------------------------------------------------------------


def finding(report: LintReport, code: str):
    return next(each for each in report.findings if each.code == code)


def places(report: LintReport, code: str) -> list[str]:
    """The marked text of each example."""
    return [each.text[slice(*each.mark)] for each in finding(report, code).examples if each.mark is not None]


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("history_rewritten", ["<think>\n\n</think>\n\n", ""]),
        ("opening_learned", ["Answer: "]),
    ],
)
def test_the_marked_place_is_what_the_finding_is_about(code: str, shown: list[str], cases: Cases) -> None:
    assert places(cases.report(code), code) == shown


def test_an_empty_reasoning_block_that_is_learned_is_a_warning(tmp_path: Path) -> None:
    report = of(byte_level(EMPTY_REASONING)(tmp_path))
    assert places(report, "opening_learned") == ["<think>\n\n</think>\n"]
    assert finding(report, "opening_learned").level == "warning"


@pytest.mark.parametrize(
    ("twin", "code", "shown"), [(DIVERGES, "prompt_diverges", ["\n", ""]), (ENDLESS, "no_terminator", [""])]
)
def test_a_refused_chat_is_shown_and_what_its_hint_sets_leaves_no_error(
    twin: Folder, code: str, shown: list[str], tmp_path: Path
) -> None:
    report = of(twin(tmp_path))
    assert codes(report) == ["plain_chat_refused"], "the rest is told under the key"
    assert f"rejected as {code}: " in report.findings[0].message
    assert places(report, "plain_chat_refused") == shown
    if code == "prompt_diverges":
        assert report.findings[0].hint == "use another template, or correct this one"
    else:
        override, *_ = hinted(report, "plain_chat_refused")
        assert of(tmp_path, override).ok


def test_a_plain_answer_that_only_a_prompt_for_reasoning_fits_is_an_error_with_its_prompt(tmp_path: Path) -> None:
    """As Gemma 4: the default prompt closes the reasoning, and no finished answer has the empty block."""
    asks = "{{ '<|im_start|>system\\nReason.<|im_end|>\\n' if thinking }}" + twins.CHATML
    template = asks.replace(
        "<|im_start|>assistant\\n' }}", "<|im_start|>assistant\\n' + ('' if thinking else '<think></think>') }}"
    )
    folder = twins.byte_level(tmp_path / "tokenizer", template=template)
    report = of(folder)
    assert codes(report) == ["plain_chat_refused"]
    assert places(report, "plain_chat_refused") == ["<think></think>", ""]
    ways = hinted(report, "plain_chat_refused")
    assert ways == ["supervision.on_prompt_mismatch=continue"]
    assert all(of(folder, way).ok for way in ways)


def test_a_variable_the_template_misses_is_named_with_what_gives_it(tmp_path: Path) -> None:
    folder = twins.byte_level(tmp_path / "tokenizer", template="{{- 'rules: ' + rules }}" + FULL)
    report = of(folder)
    assert "'rules' is undefined" in finding(report, "plain_chat_refused").message
    assert "give the template a rules in template.kwargs" in (finding(report, "plain_chat_refused").hint or "")
    assert of(folder, 'template.kwargs.rules=""').ok


def test_the_stop_that_is_proposed_against_rewriting_ends_it_and_keeps_those_of_the_recipe(tmp_path: Path) -> None:
    folder = with_eos(EOS_AT_THE_END, "<|endoftext|>")(tmp_path / "tokenizer")
    override, *_ = hinted(of(folder, 'supervision.stop=["<|im_start|>"]'), "history_rewritten")
    assert override == 'supervision.stop=["<|im_start|>", "<|im_end|>"]'
    assert codes(of(folder, override)) == []


@pytest.mark.parametrize("value", ["exact", "last", "as_rendered"])
def test_what_the_recipe_asks_for_is_a_note_without_a_choice(value: str, cases: Cases) -> None:
    assert finding(cases.report("history_rewritten"), "history_rewritten").level == "warning"
    decided = finding(cases.report("history_rewritten", f"supervision.history_rewrite={value}"), "history_rewritten")
    assert (decided.level, decided.hint) == ("note", None)


# -- rows ------------------------------------------------------------------------------------------------------------------


def chat(*texts: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]}


def write(path: Path, *rows: Any) -> list[dict[str, str]]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return [{"path": str(path)}]


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return twins.byte_level(tmp_path / "tokenizer", template=FULL)


def test_rows_that_are_kept_are_counted_and_need_no_finding(plain: Path, tmp_path: Path) -> None:
    report = of(plain, sources=write(tmp_path / "rows.jsonl", *[chat("Hi", "Hello", "And?", "Fine")] * 7))
    (rows,) = report.rows
    assert (rows.num_rows, rows.num_kept, rows.num_turns, rows.schema, rows.is_whole) == (7, 7, 14, "messages", True)
    assert codes(report) == []


def test_only_the_first_rows_of_each_input_are_examined(plain: Path, tmp_path: Path) -> None:
    sources = write(tmp_path / "a.jsonl", *[chat("Hi", "Hello")] * 5) + write(tmp_path / "b.jsonl", chat("Hi", "Hello"))
    report = of(plain, sources=sources, num_rows=3)
    assert [(rows.num_rows, rows.is_whole) for rows in report.rows] == [(3, False), (1, True)]
    assert of(plain, sources=sources, num_rows=0).rows == ()


def test_rejected_rows_are_counted_by_code_with_the_first_of_each(plain: Path, tmp_path: Path) -> None:
    rows = [chat("Hi", "Hello"), chat("Hi"), {"messages": 3}, chat("Hi", "<|im_end|>"), chat("again")]
    report = of(plain, sources=write(tmp_path / "rows.jsonl", *rows))
    found = finding(report, "rows_rejected")
    assert found.message.startswith("4 of 5 rows")
    assert found.level == "warning"
    labels = {each.label: each.text for each in found.examples}
    assert set(labels) == {"2 nothing_trained", "1 wrong_type", "1 control_token"}
    assert labels["2 nothing_trained"].startswith(f"{tmp_path}/rows.jsonl:1: ")
    assert report.ok


def test_rows_that_are_all_rejected_are_an_error(plain: Path, tmp_path: Path) -> None:
    report = of(plain, sources=write(tmp_path / "rows.jsonl", chat("Hi"), chat("And?")))
    assert finding(report, "rows_rejected").level == "error"
    assert not report.ok


def test_the_price_of_rewriting_is_measured_on_the_rows(cases: Cases, tmp_path: Path) -> None:
    folder, code = cases.folder("history_rewritten"), "history_rewritten"
    sources = write(tmp_path / "rows.jsonl", *[chat(*["Hello there"] * 20)] * 3)
    dear = finding(of(folder, sources=sources), code)
    price = float(re.findall(r"([0-9.]+) times", dear.message)[0])
    assert price > 2 and "a build stops until you choose" in dear.message
    assert {"exact", "last", "as_rendered"} == {*re.findall(r"--history (\w+)", dear.hint or "")}
    decided = finding(of(folder, "supervision.history_rewrite=exact", sources=sources), code)
    assert decided.level == "note" and f"{price:.2f} times" in decided.message


def test_a_template_that_is_not_there_is_not_said_to_be_refused(tmp_path: Path) -> None:
    report = of(byte_level(None)(tmp_path / "model"))
    assert dict(report.facts)["template"] == "none"
    assert "template" not in report.verdict


def test_rows_of_text_need_no_template(tmp_path: Path) -> None:
    folder = twins.byte_level(tmp_path / "tokenizer", template=None)
    report = of(folder, sources=write(tmp_path / "rows.jsonl", {"text": "Hello there"}))
    assert finding(report, "no_template").level == "note"
    assert report.ok
    chats = of(folder, sources=write(tmp_path / "chats.jsonl", chat("Hi", "Hello")))
    assert not chats.ok


# -- the reference page ----------------------------------------------------------------------------------------------------


def test_the_reference_page_lists_every_code_with_its_level_and_meaning() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "lint.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*) \|$", page, re.MULTILINE)
    assert rows == [(code, entry.level, entry.meaning) for code, entry in CODES.items()]


FORGETFUL = changed(
    "{%- if m.reasoning_content %}", "{%- if m.reasoning_content and (loop.last or forget is false) %}"
).replace("'\\n</think>\\n' }}{% endif %}", "'\\n</think>\\n' }}{% endif %}")


def test_a_variable_that_keeps_history_is_named(tmp_path: Path) -> None:
    report = of(byte_level(FORGETFUL)(tmp_path))
    (finding,) = [finding for finding in report.findings if finding.code == "history_rewritten"]
    assert finding.hint is not None
    assert finding.hint.startswith("--set template.kwargs.forget=false keeps them as they are")
    assert "history_rewritten" not in codes(of(tmp_path, "template.kwargs.forget=false"))


@pytest.mark.parametrize("twin", [twins.byte_level, twins.metaspace_first])
def test_a_class_that_changes_nothing_is_no_finding(twin: Folder, tmp_path: Path) -> None:
    """A byte-level file is left alone; one that says what transformers would put there is read as it is."""
    assert "tokenizer_read_otherwise" not in codes(of(of_class(twin, "LlamaTokenizer")(tmp_path)))


# -- hints do what they say ------------------------------------------------------------------------------------------------


def test_every_key_of_every_hint_does_what_the_hint_says(cases: Cases) -> None:
    """The finding is gone, or a note; where the hint says no more than what is built, that is built."""
    tried = 0
    for code in CASES:
        for each in cases.report(code).findings:
            for override in settings_in(each.hint or ""):
                after = {other.code: other.level for other in cases.report(code, override).findings}
                if each.code != "template_refused":  # which other templates may earn again, of other markers
                    assert after.get(each.code, "note") == "note", f"{code}: {each.code} under {override}"
                assert "plain_chat_refused" not in after or each.level == "error", f"{code}: {override}"
                tried += 1
    assert tried > 3


def hinted(report: LintReport, code: str) -> list[str]:
    return settings_in(finding(report, code).hint or "")


def test_a_hinted_variable_keeps_the_variables_of_the_recipe(tmp_path: Path) -> None:
    template = changed("loop.last or forget is false", "loop.last or (forget is false and deep)", FORGETFUL)
    folder = byte_level(template)(tmp_path / "tokenizer")
    given = "template.kwargs={deep: true}"
    override = hinted(of(folder, given), "history_rewritten")[0]
    assert override == "template.kwargs.forget=false"
    assert "history_rewritten" not in codes(of(folder, given, override))


def test_of_a_template_for_another_tokenizer_nothing_else_is_said(cases: Cases) -> None:
    report = cases.report("template_refused")
    assert codes(report) == ["template_refused"]
    assert "which this tokenizer splits into" in report.findings[0].message
    (override,) = hinted(report, "template_refused")
    assert "template_refused" not in codes(of(cases.folder("template_refused"), override))


def test_a_template_that_takes_only_parts_is_reported_with_its_rows(tmp_path: Path) -> None:
    template = twins.QWEN3_LIKE.replace("message.content", "message.content[0].text")
    folder = byte_level(template)(tmp_path / "tokenizer")
    report = of(folder, sources=write(tmp_path / "rows.jsonl", *[chat("Hi", "Hello")] * 3))
    assert report.rows[0].num_kept == 3


def test_rows_of_a_template_with_an_error_are_counted_too(tmp_path: Path) -> None:
    folder = byte_level(twins.NO_TERMINATOR)(tmp_path / "tokenizer")
    sources = write(tmp_path / "rows.jsonl", *[chat("Hi", "Hello")] * 4)
    report = of(folder, sources=sources)
    assert report.rows[0].num_kept == 0
    assert report.verdict == "a build would keep none of the 4 rows examined"
    again = of(folder, "supervision.no_terminator=append", sources=sources)
    assert again.rows[0].num_kept == 4
    assert again.verdict == "a build keeps 4 of the 4 rows examined"


def test_the_verdict_says_what_stops_a_build(tmp_path: Path) -> None:
    dear = write(tmp_path / "rows.jsonl", *[chat(*["Hello there"] * 20)] * 3)
    report = of(byte_level(twins.QWEN3_LIKE)(tmp_path / "rewriting"), sources=dear)
    assert report.verdict.startswith("a build would stop and ask about rewritten history")
    assert "--history as_rendered" in (finding(report, "history_rewritten").hint or "")
    assert of(CASES["template_refused"](tmp_path / "split"), sources=dear).verdict.startswith("a build would refuse")
    assert of(byte_level(FULL)(tmp_path / "own")).verdict == "plain chats can be built"
