"""First hours with real rows, tokenizers and templates: what stopped them names a way out, and it works."""

import functools
import itertools
import json
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest
from command_line import fields, run
from fitted_tokenizers import Fitted, templates

from packer.batches import Sample
from packer.source.schema import read_row

pytestmark = pytest.mark.real

CORPORA = (
    ("taubench_airline_gpt4o.jsonl", "messages"),
    ("sgd_train_tools_600.jsonl", "messages"),
    ("reason_tool_use_openai_50.jsonl", "messages"),
    ("llamafactory/glaive_toolcall_en_demo.json", "sharegpt"),
)
PLAINLY = ("--set", "engine=reference")
"""For few rows, the fast encoder would take longer to load than they take."""

NINE = re.compile(r"length [!<]= 9|length >= 9|length == 9")


@functools.cache
def calling(real: Path, name: str, schema: str, number: int) -> list[Sample]:
    """The first rows of a corpus that call tools."""
    text = (real / "corpora" / name).read_text("utf-8")
    values = json.loads(text) if name.endswith(".json") else map(json.loads, text.splitlines())
    samples = (read_row(value, number=0, schema=schema, columns={}) for value in values)
    return [*itertools.islice((s for s in samples if any(m.fields.get("tool_calls") for m in s.messages)), number)]


@pytest.mark.parametrize("number", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_short_ids_end_what_mistrals_templates_say_of_ids(number: int, real: Path, fitted: Fitted) -> None:
    """Of every template that asks for nine characters, on rows of every corpus: no rejection is about ids any more."""
    names = [name for name, source in templates(real).items() if NINE.search(source)]
    assert len(names) > 15
    kept: Counter[tuple[str, bool]] = Counter()
    for name in names if number > 2 else names[::18]:
        plain, short = fitted.stages(name), fitted.stages(name, "rows.call_ids=short")
        for corpus, schema in CORPORA:
            for sample in calling(real, corpus, schema, number):
                before, after = plain.render([sample]), short.render([sample])
                kept[corpus, False] += not before.rejections
                kept[corpus, True] += not after.rejections
                assert bool(after.rejections) <= bool(before.rejections), (name, corpus)
                for rejection in after.rejections:
                    assert not re.search(r"\bids?\b|\b9\b", rejection.reason), (name, corpus, rejection.reason)
    print(dict(kept))
    assert 10 * sum(kept[corpus, False] for corpus, _ in CORPORA) < sum(kept[corpus, True] for corpus, _ in CORPORA)


def option_of(error: str) -> list[str]:
    """The first option of a hint, as it is typed."""
    hint = error.partition("\nhint: ")[2].replace("\n", " ")
    found = re.search(r"--(?:template|set|roles|history) (?:'[^']*'|[^\s;]+)", hint)
    assert found is not None, error
    return shlex.split(found[0])


NUM_FEW = 5


@pytest.fixture
def few(real: Path, tmp_path: Path) -> Path:
    """Real conversations of many turns."""
    path = tmp_path / "chat.jsonl"
    lines = (real / "corpora" / "sgd_train_chat_1800.jsonl").read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:NUM_FEW]), "utf-8")
    return path


def test_qwen3_and_rows_of_several_turns(real: Path, few: Path, tmp_path: Path) -> None:
    """Two commands, one error, in words; or none, with the recipe of the family."""
    asked = ["build", few, *PLAINLY, "--tokenizer", real / "tokenizers" / "qwen3", "-o"]
    error = run(*asked, tmp_path / "cache", exit_code=2).stderr
    assert "without an empty reasoning block" in error.replace("\n", " ")
    option = option_of(error)
    assert option == ["--history", "as_rendered"]
    totals = fields(*asked, tmp_path / "cache", *option)["totals"]
    assert totals["kept"] == totals["documents"] == NUM_FEW
    run("init", tmp_path / "mine", "--for", "qwen3")
    again = fields(*asked, tmp_path / "again", "-c", tmp_path / "mine" / "recipe.yaml")["totals"]
    assert again == totals


@pytest.mark.parametrize(
    ("family", "tokenizer", "template"),
    [
        pytest.param("llama-3", "llama-3", None, marks=pytest.mark.slow),
        pytest.param("phi-3", "phi-3", None, marks=pytest.mark.slow),
        ("gpt-2", "gpt-2", None),
        ("mistral", "fitted", "llamacpp__mistralai-Mistral-Nemo-Instruct-2407.jinja"),
        ("gemma", "fitted", "llamacpp__google-gemma-2-2b-it.jinja"),
        pytest.param("phi-4", "fitted", "axolotl__chatml.jinja", marks=pytest.mark.slow),
    ],
)
def test_the_recipe_of_a_family_builds_rows_of_several_turns_at_the_first_try(
    family: str, tokenizer: str, template: str | None, real: Path, few: Path, fitted: Fitted, tmp_path: Path
) -> None:
    fitted.load("minimind")
    folder = fitted._folder / "minimind" if tokenizer == "fitted" else real / "tokenizers" / tokenizer
    given = [] if template is None else ["--template", real / "templates" / template]
    run("init", tmp_path / "mine", "--for", family)
    asked = ["build", few, *PLAINLY, "--tokenizer", folder, *given, "-o", tmp_path / "cache"]
    totals = fields(*asked, "-c", tmp_path / "mine" / "recipe.yaml")["totals"]
    assert totals["kept"] == totals["rows"] == NUM_FEW
    assert totals["tokens"] < 2 * sum(len(line) for line in few.read_text("utf-8").splitlines()) / 4
