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
from search_effort import one_in

from packer.audit.lint.codes import CODES
from packer.audit.lint.lint_report import LintReport, lint
from packer.errors import InputError, RecipeError
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
END = "{{- '<|im_end|>' }}"
PROMPT = r"{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
HEADER = r"{{- '<|im_start|>' + m.role + '\n' }}"

Folder = Callable[..., Path]


def changed(old: str, new: str, template: str = FULL) -> str:
    assert template.count(old) == 1
    return template.replace(old, new)


def marked(opening: str, closing: str) -> str:
    """FULL where an answer is marked from before `opening` to behind `closing`."""
    body = FULL[FULL.index(HEADER) : FULL.index(END) + len(END)]
    answer = changed(opening, "{%- generation %}" + opening, body)
    answer = changed(closing, closing + "{%- endgeneration %}", answer)
    return changed(body, f"{{%- if m.role == 'assistant' %}}{answer}{{%- else %}}{body}{{%- endif %}}")


def of(folder: Path, *overrides: str, sources: list[dict[str, str]] | None = None, num_rows: int = 200) -> LintReport:
    values: dict[str, Any] = {"tokenizer": str(folder), "sources": sources or []}
    return lint(make_recipe(values, overrides), num_rows=num_rows)


def codes(report: LintReport) -> list[str]:
    return [finding.code for finding in report.findings]


def byte_level(template: str | None, **options: Any) -> Folder:
    return lambda folder: twins.byte_level(folder, template=template, **options)


EMPTY_REASONING = changed("{%- if m.reasoning_content %}{{ '<think>\\n' + m.reasoning_content", "{%- if m.role == 'assistant' %}{{ '<think>\\n' + (m.reasoning_content or '')")  # fmt: skip
REASONED = "{%- if m.reasoning_content %}"


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

REWRITING = byte_level(twins.QWEN3_LIKE)

CASES: dict[str, Folder] = {
    "no_template": byte_level(None),
    "template_refused": byte_level(changed("<|im_start|>tools", "<|tools|>").replace("'<|im_start|>' + m.role", "'<|' + m.role + '|>'")),
    "plain_chat_refused": byte_level("{{ raise_exception('never') }}"),
    "prompt_diverges": byte_level(changed(PROMPT, PROMPT.replace(r"\n'", r"\n\n'"))),
    "no_terminator": byte_level(twins.NO_TERMINATOR),
    "turn_end_is_no_stop": with_eos(EOS_AT_THE_END, "<|endoftext|>"),
    "chat_rewritten": REWRITING,
    "reasoning_forgotten": REWRITING,
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


OF_ROWS = {"rows_rejected", "rows_unread", "rows_price"}


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


def test_of_rewritten_history_and_forgotten_reasoning_only_what_the_rows_have_is_reported(
    cases: Cases, tmp_path: Path
) -> None:
    folder = cases.folder("chat_rewritten")
    assert codes(of(folder, sources=write(tmp_path / "short.jsonl", chat("Hi", "Hello")))) == []
    plain = codes(of(folder, sources=write(tmp_path / "long.jsonl", chat("Hi", "Hello", "And?", "Fine"))))
    assert "chat_rewritten" in plain and "reasoning_forgotten" not in plain
    tagged = chat("Hi", "<think>\nA greeting.\n</think>\n\nHello", "And?", "Fine")
    in_field = chat("Hi", "Hello", "And?", "Fine")
    in_field["messages"][1]["reasoning_content"] = "A greeting."
    for row in (tagged, in_field):
        sources = write(tmp_path / "reasoned.jsonl", row)
        found = codes(of(folder, "supervision.reasoning=field", sources=sources))
        assert {"chat_rewritten", "reasoning_forgotten"} <= {*found}


def test_every_code_has_a_template_that_earns_it() -> None:
    assert {*CASES, *OF_ROWS} == set(CODES)


def test_a_template_that_renders_everything_as_it_is_gets_no_finding_but_its_terminator(tmp_path: Path) -> None:
    assert codes(of(twins.byte_level(tmp_path / "tokenizer", template=FULL))) == []


def test_nothing_is_said_of_a_chat_that_cannot_be_built(cases: Cases) -> None:
    report = cases.report("plain_chat_refused")
    assert codes(report) == ["plain_chat_refused"]
    assert "never" in report.findings[0].message
    assert not report.ok


def test_findings_come_by_level_and_in_the_order_of_the_table(tmp_path: Path) -> None:
    folder = twins.byte_level(tmp_path / "tokenizer", template="{{- 'Hi' }}" + twins.QWEN3_LIKE)
    sources = write(tmp_path / "rows.jsonl", chat("Hi", "Hello", "And?", "Fine"), chat("Hi"))
    report = of(folder, sources=sources)
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
        ("prompt_diverges", ["\n", ""]),
        ("turn_end_is_no_stop", ["<|im_end|>\n<|endoftext|>", ""]),
        ("chat_rewritten", ["<think>\n\n</think>\n\n", ""]),
        ("reasoning_forgotten", ["first thoughts", ""]),
        ("opening_learned", ["Answer: "]),
    ],
)
def test_the_marked_place_is_what_the_finding_is_about(code: str, shown: list[str], cases: Cases) -> None:
    assert places(cases.report(code), code) == shown


def test_marks_that_agree_with_what_is_learned_are_no_finding(tmp_path: Path) -> None:
    assert codes(of(byte_level(marked(REASONED, END))(tmp_path))) == []


def test_an_empty_reasoning_block_that_is_learned_is_a_warning(tmp_path: Path) -> None:
    report = of(byte_level(EMPTY_REASONING)(tmp_path))
    assert places(report, "opening_learned") == ["<think>\n\n</think>\n"]
    assert finding(report, "opening_learned").level == "warning"


def test_what_the_hint_of_an_error_sets_leaves_no_error(cases: Cases) -> None:
    report = cases.report("no_terminator")
    assert codes(report) == ["no_terminator"], "the rest is told under the key"
    override, *_ = hinted(report, "no_terminator")
    assert of(cases.folder("no_terminator"), override).ok


def test_a_prompt_with_which_no_answer_begins_is_for_the_template_to_mend(cases: Cases) -> None:
    report = cases.report("prompt_diverges")
    assert codes(report) == ["prompt_diverges"]
    assert finding(report, "prompt_diverges").hint == "use another template, or correct this one"


def test_a_plain_answer_that_only_a_prompt_for_reasoning_fits_is_an_error_with_its_prompt(tmp_path: Path) -> None:
    """As Gemma 4: the default prompt closes the reasoning, and no finished answer has the empty block."""
    asks = "{{ '<|im_start|>system\\nReason.<|im_end|>\\n' if thinking }}" + twins.CHATML
    template = asks.replace(
        "<|im_start|>assistant\\n' }}", "<|im_start|>assistant\\n' + ('' if thinking else '<think></think>') }}"
    )
    folder = twins.byte_level(tmp_path / "tokenizer", template=template)
    report = of(folder)
    assert codes(report) == ["prompt_diverges"]
    assert places(report, "prompt_diverges") == ["<think></think>", ""]
    ways = hinted(report, "prompt_diverges")
    assert ways == ["supervision.on_prompt_mismatch=continue"]
    assert all(of(folder, way).ok for way in ways)


def test_a_variable_the_template_misses_is_named_with_what_gives_it(tmp_path: Path) -> None:
    folder = twins.byte_level(tmp_path / "tokenizer", template="{{- 'rules: ' + rules }}" + FULL)
    report = of(folder)
    assert "'rules' is undefined" in finding(report, "plain_chat_refused").message
    assert "give the template a rules in template.kwargs" in (finding(report, "plain_chat_refused").hint or "")
    assert of(folder, 'template.kwargs.rules=""').ok


def test_the_token_that_ends_a_turn_is_proposed_as_a_stop(tmp_path: Path) -> None:
    folder = with_eos(FULL, "<|endoftext|>")(tmp_path / "tokenizer")
    override, _ = hinted(of(folder), "no_terminator")
    assert override == 'supervision.stop=["<|im_end|>"]'
    assert of(folder, override).ok


def test_the_stop_that_is_proposed_against_rewriting_ends_it(cases: Cases) -> None:
    hint = finding(cases.report("turn_end_is_no_stop"), "turn_end_is_no_stop").hint
    assert hint is not None
    (override,) = re.findall(r"--set '([^']*)'", hint)
    assert codes(of(cases.folder("turn_end_is_no_stop"), override)) == []


def test_as_rendered_is_proposed_only_where_it_makes_one_document(cases: Cases) -> None:
    assert "as_rendered trains this chat in one document" in (
        finding(cases.report("chat_rewritten"), "chat_rewritten").hint or ""
    )
    appended = of(cases.folder("no_terminator"), "supervision.no_terminator=append")
    assert "as_rendered" not in (finding(appended, "chat_rewritten").hint or "")


@pytest.mark.parametrize(
    ("code", "override"),
    [
        ("chat_rewritten", "supervision.history_rewrite=as_rendered"),
        ("reasoning_forgotten", "supervision.history_rewrite=exact"),
    ],
)
def test_what_the_recipe_asks_for_is_a_note(code: str, override: str, cases: Cases) -> None:
    assert finding(cases.report(code), code).level == "warning"
    assert finding(of(cases.folder(code), override), code).level == "note"


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


def test_the_price_of_rewriting_is_measured_on_the_rows(tmp_path: Path) -> None:
    folder = twins.byte_level(tmp_path / "tokenizer", template=twins.QWEN3_LIKE)
    sources = write(tmp_path / "rows.jsonl", *[chat(*["Hello there"] * 20)] * 3)
    dear = finding(of(folder, sources=sources), "rows_price")
    price = float(re.findall(r"([0-9.]+) times", dear.message)[0])
    assert price > 2
    assert dear.level == "warning"
    assert "--history exact" in (dear.hint or "")
    assert finding(of(folder, "supervision.history_rewrite=exact", sources=sources), "rows_price").level == "note"
    assert "rows_price" not in codes(of(folder, sources=write(tmp_path / "one.jsonl", chat("Hi", "Hello"))))


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


def test_what_is_missing_is_an_error_of_its_own(plain: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no tokenizer"):
        lint(make_recipe({}))
    with pytest.raises(InputError, match="no such file"):
        of(tmp_path / "nowhere")
    with pytest.raises(InputError):
        of(plain, sources=[{"path": str(tmp_path / "nowhere.jsonl")}])


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
    (finding,) = [finding for finding in report.findings if finding.code == "reasoning_forgotten"]
    assert finding.hint is not None
    assert finding.hint.startswith("--set template.kwargs.forget=false keeps earlier turns as they are")
    assert "reasoning_forgotten" not in codes(of(tmp_path, "template.kwargs.forget=false"))


@pytest.mark.parametrize("twin", [twins.byte_level, twins.metaspace_first])
def test_a_class_that_changes_nothing_is_no_finding(twin: Folder, tmp_path: Path) -> None:
    """A byte-level file is left alone; one that says what transformers would put there is read as it is."""
    assert "tokenizer_read_otherwise" not in codes(of(of_class(twin, "LlamaTokenizer")(tmp_path)))


# -- hints do what they say ------------------------------------------------------------------------------------------------


def test_every_key_of_every_hint_does_what_the_hint_says(cases: Cases) -> None:
    """The finding is gone, or a note; where the hint says no more than what is built, that is built."""
    tried = 0
    for code in one_in(2, list(CASES)):
        for each in cases.report(code).findings:
            for override in settings_in(each.hint or ""):
                after = {other.code: other.level for other in cases.report(code, override).findings}
                if each.code != "template_refused":  # which other templates may earn again, of other markers
                    assert after.get(each.code, "note") == "note", f"{code}: {each.code} under {override}"
                assert "plain_chat_refused" not in after or each.level == "error", f"{code}: {override}"
                tried += 1
    assert tried > 5


def test_no_hint_sets_what_the_recipe_has_set_already(tmp_path: Path) -> None:
    rewriting = byte_level(twins.QWEN3_LIKE)(tmp_path / "rewriting")
    for value in ("exact", "last", "as_rendered"):
        report = of(rewriting, f"supervision.history_rewrite={value}")
        assert f"supervision.history_rewrite={value}" in finding(report, "chat_rewritten").message
        assert hinted(report, "chat_rewritten") == []
        assert hinted(report, "reasoning_forgotten") == []


def hinted(report: LintReport, code: str) -> list[str]:
    return settings_in(finding(report, code).hint or "")


def test_a_hinted_stop_keeps_the_stops_of_the_recipe(tmp_path: Path) -> None:
    folder = CASES["turn_end_is_no_stop"](tmp_path / "tokenizer")
    (override,) = hinted(of(folder, 'supervision.stop=["<|im_start|>"]'), "turn_end_is_no_stop")
    assert override == 'supervision.stop=["<|im_start|>","<|im_end|>"]'


def test_a_hinted_variable_keeps_the_variables_of_the_recipe(tmp_path: Path) -> None:
    template = changed("loop.last or forget is false", "loop.last or (forget is false and deep)", FORGETFUL)
    folder = byte_level(template)(tmp_path / "tokenizer")
    given = "template.kwargs={deep: true}"
    override = hinted(of(folder, given), "reasoning_forgotten")[0]
    assert override == "template.kwargs.forget=false"
    assert "reasoning_forgotten" not in codes(of(folder, given, override))


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
    assert "--history as_rendered" in (finding(report, "rows_price").hint or "")
    assert of(CASES["template_refused"](tmp_path / "split"), sources=dear).verdict.startswith("a build would refuse")
    assert of(byte_level(FULL)(tmp_path / "own")).verdict == "plain chats can be built"


def test_the_price_is_reported_first_and_of_each_file(tmp_path: Path) -> None:
    folder = byte_level(twins.QWEN3_LIKE)(tmp_path / "tokenizer")
    sources = write(tmp_path / "b.jsonl", chat(*["Hello there"] * 20)) + write(
        tmp_path / "a.jsonl", chat("Hi", "Hello")
    )
    report = of(folder, sources=sources)
    assert codes(report)[0] == "rows_price"
    labels = [(each.label, each.text) for each in finding(report, "rows_price").examples]
    assert [Path(label).name for label, _ in labels] == ["b.jsonl", "a.jsonl"]
    assert labels[1][1] == "1.00 times"
