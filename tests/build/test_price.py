"""The price of rewritten history is estimated from what is made, never above what is known, and asked for early."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.build import build, price
from packer.build.partition import read_journal
from packer.build.plan import plan_build
from packer.build.price import CLEARLY, Estimate, RewrittenError, telling_first
from packer.build.progress import Silent
from packer.recipe import load_recipe, make_recipe, to_json

COUNTING = (
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
"""A template in which every question changes the start of the text."""


def shard(source: int, num_rows: int, tokens: int, last: int) -> SimpleNamespace:
    return SimpleNamespace(source=source, num_input_rows=num_rows, num_tokens=tokens, num_last_tokens=last)


def plan_of(rows: list[int], rewritten: str | None = None) -> SimpleNamespace:
    recipe = SimpleNamespace(supervision=SimpleNamespace(rewritten=rewritten))
    return SimpleNamespace(recipe=recipe, inputs=[SimpleNamespace(num_rows=n) for n in rows], model=None)


def estimated(inputs: list[int], shards: list[SimpleNamespace]) -> float:
    """The estimate by the letter: inputs that were seen by what was seen of them, the others without any rewriting."""
    seen = {}
    for each in shards:
        rows, paid, last = seen.get(each.source, (0, 0, 0))
        seen[each.source] = rows + each.num_input_rows, paid + each.num_tokens, last + each.num_last_tokens
    paid = sum(inputs[i] * tokens / rows for i, (rows, tokens, _) in seen.items())
    last = sum(inputs[i] * tokens / rows for i, (rows, _, tokens) in seen.items())
    unseen = sum(rows for i, rows in enumerate(inputs) if i not in seen)
    known = sum(rows for i, rows in enumerate(inputs) if i in seen)
    return (paid + last / known * unseen) / (last + last / known * unseen) if last else 0.0


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=4).flatmap(
        lambda inputs: st.tuples(
            st.just(inputs),
            st.lists(
                st.builds(
                    lambda source, rows, last, times: shard(source, rows, int(last * times), last),
                    st.integers(0, len(inputs) - 1),
                    st.integers(1, 100),
                    st.integers(0, 10_000),
                    st.floats(1, 9),
                ),
                max_size=8,
            ),
        )
    )
)
def test_it_stops_where_what_is_there_and_the_rest_unrewritten_are_clearly_above(case):
    inputs, shards = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(price, "way_out", lambda *_: "")
        estimate = Estimate(plan_of(inputs))
        for number, each in enumerate(shards, 1):
            expected = estimated(inputs, shards[:number])
            if math.isclose(expected, CLEARLY, rel_tol=1e-6):
                return
            if expected > CLEARLY:
                with pytest.raises(RewrittenError, match=f"takes about {expected:.1f} times"):
                    estimate.add(each)
                return
            estimate.add(each)


def test_whoever_said_what_to_do_is_not_asked():
    estimate = Estimate(plan_of([10], "exact"))
    estimate.add(shard(0, 10, 900, 100))


def rows(path: Path, num_rows: int, num_turns: int) -> dict[str, str]:
    talk = [{"role": "user", "content": "How far is it?"}, {"role": "assistant", "content": "Not far at all."}]
    path.write_text("".join(json.dumps({"messages": talk * num_turns, "n": n}) + "\n" for n in range(num_rows)))
    return {"path": str(path), "schema": "messages"}


def recipe_of(starter: Path, folder: Path, sources: list[dict[str, str]], **others: object):
    (folder / "counting.jinja").write_text(COUNTING)
    values = to_json(load_recipe(starter / "recipe.yaml"))
    template = {**values["template"], "file": str(folder / "counting.jinja")}
    return make_recipe({**values, "sources": sources, "template": template, "partition_bytes": 2**15, **others})


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_build_stops_after_the_first_partitions(jobs, starter, tmp_path):
    """Finished partitions are kept, and the rest is not made: of a long build that would be hours."""
    recipe = recipe_of(starter, tmp_path, [rows(tmp_path / "long.jsonl", 800, 8)])
    with pytest.raises(RewrittenError, match=r"takes about [3-9]\.\d times the tokens"):
        build(recipe, tmp_path / "cache", jobs=jobs)
    num_tasks = len(plan_build(recipe, Silent()).tasks)
    assert num_tasks > 20 and 1 <= len(read_journal(tmp_path / "cache")) < 10
    assert not (tmp_path / "cache" / "manifest.json").exists()


def test_few_dear_rows_among_many_stop_nothing_and_are_told_first(starter, tmp_path):
    sources = [rows(tmp_path / "dear.jsonl", 3, 8), rows(tmp_path / "plain.jsonl", 1500, 1)]
    recipe = recipe_of(starter, tmp_path, sources)
    plan = plan_build(recipe, Silent())
    numbers = range(len(plan.tasks))
    first = next(number for number in numbers if plan.tasks[number].source == 1)
    assert telling_first(plan, numbers) == [0, first] and first > 0
    result = build(recipe, tmp_path / "cache", jobs=2)
    shards = [each for each in result.manifest.shards if each.kind == "documents"]
    assert shards[0].num_tokens > CLEARLY * shards[0].num_last_tokens
