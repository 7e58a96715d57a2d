"""Keys that a recipe leaves open are set before a build where all rows of a source need them, and nowhere else."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import twins
from command_line import fields, run

from packer.recipe.recipe import make_recipe
from packer.store.manifest import read_manifest

OPENS = twins.CHATML.replace("assistant\\n' }}{% endif %}", "assistant\\n<think>\\n' }}{% endif %}").replace(
    "(message.content or '')",
    "('<think>\\n' ~ message.reasoning_content ~ '\\n</think>\\n\\n' if message.reasoning_content else '')"
    " + (message.content or '')",
)
"""Asks for reasoning, and shows an answer without any as if it had not asked, as DeepSeek R1's distillations do."""

DROPS = twins.CHATML.replace("assistant\\n'", "assistant\\n<think>' ~ ('' if thinking else '</think>')").replace(
    "(message.content or '')", "('<think></think>' if message.role == 'assistant' else '') ~ (message.content or '')"
)
"""Closes the reasoning unless it is asked for, and finished answers have none, as in DeepSeek V3.1."""

CUTS = OPENS.replace(
    "(message.content or '')",
    "((message.content or '') ~ ' (end)' if message.role == 'assistant' else message.content)",
)
"""The same, but what it writes is not what the row says."""

ASK, ANSWER = {"role": "user", "content": "When is the tide?"}, {"role": "assistant", "content": "At six."}
PLAIN: dict[str, Any] = {"messages": [ASK, ANSWER]}
REASONED: dict[str, Any] = {"messages": [ASK, ANSWER | {"reasoning_content": "Look it up."}]}
KEY = "supervision.on_prompt_mismatch"


@pytest.fixture
def asked(tmp_path: Path) -> Any:
    """The arguments of a build of some rows under a template."""

    def arguments(*rows: dict[str, Any], template: str = OPENS, name: str = "rows.jsonl") -> list[Any]:
        folder = tmp_path / "model"
        twins.byte_level(folder, template=template)
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        return [tmp_path / name, "--tokenizer", folder, "-o", tmp_path / "cache"]

    return arguments


def mismatch(cache: Path) -> str:
    """What the recipe of a cache says."""
    said: str = read_manifest(cache).recipe["supervision"]["on_prompt_mismatch"]
    return said


def test_rows_that_are_all_refused_for_their_prompt_are_trained_after_it(asked: Any, tmp_path: Path) -> None:
    arguments = asked(PLAIN, PLAIN)
    for told in (run("preview", *arguments[:-2]).stderr, run("build", *arguments, "--dry-run").stdout):
        assert f"{KEY}=continue was set" in " ".join(told.split()) and not (tmp_path / "cache").exists()
    built = fields("build", *arguments)
    assert built["totals"]["kept"] == 2
    (said,) = built["settled_keys"]
    assert said.startswith(f"{tmp_path / 'rows.jsonl'}: {KEY}=continue was set, as every row needs it")
    assert said.endswith("answers without reasoning learn to skip the reasoning that their prompts open")
    assert mismatch(tmp_path / "cache") == "continue"
    shown = run("inspect", tmp_path / "cache").stdout
    assert "At six." in shown and "</think>" in shown


def test_rows_that_are_all_refused_as_the_template_drops_their_reasoning_are_trained_with_it(
    asked: Any, tmp_path: Path
) -> None:
    (said,) = fields("build", *asked(REASONED, REASONED, template=DROPS))["settled_keys"]
    assert "learn to skip" not in said
    assert mismatch(tmp_path / "cache") == "continue"
    assert "Look it up." in run("inspect", tmp_path / "cache").stdout
    no_place = asked(REASONED, template=twins.CHATML)  # whose prompt opens no reasoning
    assert "was set" not in run("build", *no_place, "--force", exit_code=3).output


def test_what_was_set_is_in_the_identity_and_can_be_made_again(asked: Any, tmp_path: Path) -> None:
    arguments = asked(PLAIN)
    told = run("build", *arguments).stdout
    assert f"{KEY}=continue was set" in " ".join(told.split())
    run("verify", tmp_path / "cache", "--sources", "/", "--reencode")
    left_open = (tmp_path / "cache" / "manifest.json").read_bytes()
    assert not fields("build", *arguments)["built"]
    assert not fields("build", *arguments, "--set", f"{KEY}=continue")["built"]
    given = [*arguments[:-1], tmp_path / "given"]
    assert fields("build", *given, "--set", f"{KEY}=continue")["settled_keys"] == []
    assert (tmp_path / "given" / "manifest.json").read_bytes() == left_open


def test_what_a_user_has_said_is_never_overridden(asked: Any) -> None:
    told = run("build", *asked(PLAIN), "--set", f"{KEY}=refuse", exit_code=3)
    assert "was set" not in told.output and "prompt_diverges" in told.stderr


@pytest.mark.parametrize("rows", [[REASONED, PLAIN], [PLAIN, REASONED], [REASONED]])
def test_where_some_rows_are_kept_without_it_nothing_is_set(asked: Any, rows: list[Any], tmp_path: Path) -> None:
    built = fields("build", *asked(*rows))
    assert built["settled_keys"] == [] and mismatch(tmp_path / "cache") == "refuse"
    assert built["totals"]["kept"] == 1
    assert not fields("build", *asked(*rows))["built"]


def test_a_template_that_does_not_write_what_the_rows_say_sets_nothing(asked: Any) -> None:
    told = run("build", *asked(PLAIN, template=CUTS), exit_code=3)
    assert "prompt_diverges" in told.stderr and "was set" not in told.output


SWITCHES = OPENS.replace(
    "<think>\\n' }}{% endif %}",
    "<think>\\n' ~ ('' if enable_thinking | default(true) else '\\n</think>\\n\\n') }}{% endif %}",
)
"""The same, with a variable that closes the reasoning."""


def test_a_row_whose_own_variables_contradict_its_reasoning_is_told_so(asked: Any) -> None:
    assert SWITCHES != OPENS
    rows = [REASONED | {"chat_template_kwargs": {"enable_thinking": on}} for on in (False, True)]
    arguments = asked(*rows, template=SWITCHES)
    assert fields("build", *arguments)["totals"]["rejected"] == {"prompt_diverges": 1}
    (hint,) = [row["hint"] for row in fields("preview", *arguments[:-2])["rows"] if row["hint"]]
    assert hint.startswith("--columns chat_template_kwargs=null leaves out all variables of rows; ")
    assert fields("build", *arguments, "--force", *hint.split()[:2])["totals"]["kept"] == 2


def test_of_several_sources_the_one_that_needs_it_is_named(asked: Any, tmp_path: Path) -> None:
    asked(REASONED, name="reasoned.jsonl")
    arguments = asked(PLAIN)
    built = fields("build", tmp_path / "reasoned.jsonl", *arguments)
    (said,) = built["settled_keys"]
    assert said.startswith(f"{tmp_path / 'rows.jsonl'}: ") and built["totals"]["kept"] == 2


def test_a_build_after_one_that_refused_is_not_taken_for_up_to_date(asked: Any, tmp_path: Path) -> None:
    asked(REASONED, name="reasoned.jsonl")
    arguments = [tmp_path / "reasoned.jsonl", *asked(PLAIN)]
    assert fields("build", *arguments, "--set", f"{KEY}=refuse")["totals"]["kept"] == 1
    assert fields("build", *arguments, "--force")["totals"]["kept"] == 2


def test_pairs_are_tried_side_by_side(asked: Any) -> None:
    pair = {"prompt": "When is the tide?", "chosen": [ANSWER], "rejected": [ANSWER | {"content": "Never."}]}
    built = fields("build", *asked(pair))
    assert len(built["settled_keys"]) == 1 and built["totals"]["kept"] == 1


NINE = twins.CHATML.replace(
    "{% for message in messages %}",
    "{% for message in messages %}"
    "{% for call in message.tool_calls or [] %}"
    "{% if call.id is not defined or call.id | length != 9 %}"
    "{{ raise_exception('ids must have length 9') }}{% endif %}"
    "{{ '<|im_start|>assistant\n' + call.function | tojson + '<|im_end|>\n' }}{% endfor %}"
    "{% if not message.tool_calls %}",
    1,
).replace("{%- endfor %}\n{% if add", "{%- endif %}{%- endfor %}\n{% if add")
CALL = {"id": "call_1", "type": "function", "function": {"name": "tide", "arguments": {"harbor": "Oban"}}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
CALLS: dict[str, Any] = {
    "messages": [ASK, CALLED, {"role": "tool", "tool_call_id": "call_1", "content": "06:12"}, ANSWER]
}


def test_calls_whose_ids_are_all_refused_get_short_ones(asked: Any, tmp_path: Path) -> None:
    built = fields("build", *asked(PLAIN, CALLS, template=NINE))
    (said,) = built["settled_keys"]
    assert "rows.call_ids=short was set, as every row with calls needs it" in said
    assert built["totals"]["kept"] == 2
    assert read_manifest(tmp_path / "cache").recipe["rows"]["call_ids"] == "short"
    run("verify", tmp_path / "cache", "--sources", "/", "--reencode")
    assert not fields("build", *asked(PLAIN, CALLS, template=NINE))["built"]
    as_given = fields("build", *asked(PLAIN, CALLS, template=NINE), "--force", "--set", "rows.call_ids=as_given")
    assert as_given["totals"]["kept"] == 1 and as_given["settled_keys"] == []


MADE = twins.CHATML.replace(
    "(message.content or '')",
    "('return of ' + message.tool_call_id + ': ' if message.role == 'tool' else '') + (message.content or '')"
    " }}{% for call in message.tool_calls or [] %}{% set count.calls = count.calls + 1 %}"
    "{{ '<call>' + ID + (call.function.arguments | tojson) + '</call>' }}{% endfor %}{{ ''",
)
IDS = {
    "made, counted in each message": "('functions.' + call.function.name + ':' + loop.index0 | string)",
    "made, counted in the chat": "('functions.' + call.function.name + ':' + (count.calls - 1) | string)",
    "alone": "call.id",
}


def asking(number: int, *names: str) -> list[dict[str, Any]]:
    """Calls with ids of their own, and their results."""
    ids = {f"call_{number}{name}": {"name": name, "arguments": {"at": number}} for name in names}
    calls = [{"id": key, "type": "function", "function": each} for key, each in ids.items()]
    results = [{"role": "tool", "tool_call_id": key, "content": f"{key} is right"} for key in ids]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


@pytest.mark.parametrize("how", IDS)
def test_results_get_the_ids_that_a_template_shows_at_their_calls(asked: Any, tmp_path: Path, how: str) -> None:
    """As templates of Kimi K2, which would name ids at results that no call shows."""
    template = "{%- set count = namespace(calls=0) %}" + MADE.replace("ID", IDS[how])
    rows = [{"messages": [ASK, *asking(k, "tide", "ferry"), *asking(k, "tide"), ANSWER]} for k in range(4)]
    arguments = asked(*rows, PLAIN, template=template)
    (said,) = fields("build", *arguments)["settled_keys"]
    assert "rows.call_ids=named was set, as every row with results of calls needs it" in said
    run("verify", tmp_path / "cache", "--sources", "/", "--reencode")
    shown = run("inspect", tmp_path / "cache", "--row", f"{tmp_path / 'rows.jsonl'}:3").stdout
    numbers = ["0", "1", "0" if "each message" in how else "2"]
    ids = [f"functions.{name}:{k}" for name, k in zip(("tide", "ferry", "tide"), numbers, strict=True)]
    assert re.findall(r"<call>(\S+?)\{", shown) == ids
    assert re.findall(r"return of (\S+): call_3(\w+)", shown) == [(each, each[10:-2]) for each in ids]

    refused = fields("build", *arguments, "--force", "--set", "rows.call_ids=as_given")
    assert refused["totals"]["rejected"] == {"dropped_tool_call" if how == "alone" else "mangled_call": 4}
    hint = str(fields("preview", *arguments[:-2], "--set", "rows.call_ids=as_given")["rows"][0]["hint"])
    assert shlex.split(hint)[:2] == ["--set", "rows.call_ids=named"] and "|safe" not in hint


def test_calls_without_results_and_ids_that_fit_need_no_key(asked: Any) -> None:
    template = "{%- set count = namespace(calls=0) %}" + MADE.replace("ID", IDS["made, counted in each message"])
    fitting = json.loads(json.dumps(asking(1, "tide")).replace("call_1tide", "functions.tide:0"))
    called = {"messages": [ASK, *asking(2, "tide")[:1]]}
    built = fields("build", *asked({"messages": [ASK, *fitting, ANSWER]}, called, template=template))
    assert built["settled_keys"] == [] and built["totals"]["kept"] == 2


def test_ids_as_given_are_no_other_documents_than_without_the_key(asked: Any, tmp_path: Path) -> None:
    first = fields("build", *asked(PLAIN))["recipe_fingerprint"]
    again = fields("build", *asked(PLAIN)[:-1], tmp_path / "other", "--set", "rows.call_ids=as_given")
    assert first == again["recipe_fingerprint"]


def test_recipes_of_older_caches_mean_what_they_meant() -> None:
    refusing = make_recipe({"supervision": {"on_prompt_mismatch": "refuse"}})
    assert refusing.documents_half() == make_recipe({}).documents_half()
