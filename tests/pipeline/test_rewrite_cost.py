"""The price of rewritten history is estimated from the first partitions, whatever the order of work, and asked early."""

import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from followed_steps import write
from hypothesis import assume, given
from hypothesis import strategies as st

from packer.display import Silent
from packer.pipeline.documents import sampled_tasks
from packer.pipeline.from_python import build
from packer.pipeline.messages import left_out
from packer.pipeline.messages.left_out import CLEARLY, RewrittenError, refuse_early
from packer.pipeline.partition import PartitionResult, read_journal
from packer.pipeline.plan.build_plan import plan_build
from packer.recipe.recipe import load_recipe, make_recipe, to_json

COUNTING = (
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
"""A template in which every question changes the start of the text."""


def shard(num_rows: int, tokens: int, last: int) -> SimpleNamespace:
    return SimpleNamespace(num_input_rows=num_rows, num_tokens=tokens, num_last_tokens=last)


def plan_of(rows: list[int], partitions: int, history_rewrite: str | None = None) -> SimpleNamespace:
    """A plan of inputs of so many rows, each of so many partitions."""
    recipe = SimpleNamespace(supervision=SimpleNamespace(history_rewrite=history_rewrite))
    inputs = [SimpleNamespace(num_rows=n) for n in rows]
    tasks = [SimpleNamespace(source=i) for i in range(len(rows)) for _ in range(partitions)]
    return SimpleNamespace(recipe=recipe, inputs=inputs, tasks=tasks, model=None)


@given(data=st.data(), rows=st.lists(st.integers(1, 500), min_size=1, max_size=20), partitions=st.integers(1, 3))
def test_the_first_partitions_tell_in_whatever_order_they_come(data, rows, partitions):
    """Each counts for all rows of its input; the others count for nothing, and so do inputs beyond the sixteenth."""
    count = st.tuples(st.integers(1, 100), st.integers(0, 1000), st.floats(1, 6))
    made = [shard(n, int(last * times), last) for n, last, times in data.draw(count_of(count, len(rows) * partitions))]
    first = [n * partitions for n in range(min(len(rows), 16))]
    paid = sum(rows[n // partitions] * made[n].num_tokens / made[n].num_input_rows for n in first)
    last = sum(rows[n // partitions] * made[n].num_last_tokens / made[n].num_input_rows for n in first)
    assume(not math.isclose(paid, CLEARLY * last, rel_tol=1e-9))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(left_out, "choices_hint", lambda *_: "")
        plan, results = plan_of(rows, partitions), {}
        assert sampled_tasks(plan) == tuple(first)
        told = None
        for number in data.draw(st.permutations(range(len(made)))):
            results[number] = SimpleNamespace(shard=made[number])
            try:
                refuse_early(plan, results, sampled_tasks(plan))
            except RewrittenError as error:
                told = error.message
                assert set(first) <= set(results)
        assert (told is not None) == (paid > CLEARLY * last)
        if told is not None:
            times = re.search(r"takes about ([0-9.]+) times", told)
            assert times is not None
            assert abs(float(times[1]) - paid / last) < 0.0501  # half of a unit may be rounded to either side


def count_of(strategy, number):
    return st.lists(strategy, min_size=number, max_size=number)


def test_a_choice_in_the_recipe_is_not_asked_for():
    plan = plan_of([10], 1, "exact")
    assert sampled_tasks(plan) == ()
    refuse_early(plan, {0: SimpleNamespace(shard=shard(10, 900, 100))}, sampled_tasks(plan))


def rows(path: Path, num_rows: int, num_turns: int) -> dict[str, str]:
    talk = [{"role": "user", "content": "How far is it?"}, {"role": "assistant", "content": "Not far at all."}]
    write(path, [{"messages": talk * num_turns, "n": n} for n in range(num_rows)])
    return {"path": str(path), "schema": "messages"}


def recipe_of(starter: Path, folder: Path, sources: list[dict[str, str]], **others: object):
    (folder / "counting.jinja").write_text(COUNTING)
    values = to_json(load_recipe(starter / "recipe.yaml"))
    template = {**values["template"], "file": str(folder / "counting.jinja")}
    return make_recipe({**values, "sources": sources, "template": template, "partition_bytes": 2**12, **others})


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_build_stops_once_the_first_partitions_are_made(jobs, starter, tmp_path):
    """What is finished is kept, and the same command asks again at once; the rest, which may take hours, is not made."""
    sources = [rows(tmp_path / "plain.jsonl", 100, 1), rows(tmp_path / "long.jsonl", 100, 8)]
    recipe = recipe_of(starter, tmp_path, sources)
    keys = {task.key: task.partition.num_rows for task in plan_build(recipe, Silent()).tasks}
    num_tasks = len(keys)
    for _ in range(2):
        with pytest.raises(RewrittenError, match=r"takes about [3-9]\.\d times the tokens"):
            build(recipe, tmp_path / "cache", jobs=jobs)
        num_made = len(read_journal(tmp_path / "cache", PartitionResult, keys))
        assert num_made == 2 if jobs == 1 else 2 <= num_made < num_tasks
    assert num_tasks > 20 and not (tmp_path / "cache" / "manifest.json").exists()


def test_few_dear_rows_among_many_stop_nothing(starter, tmp_path):
    sources = [rows(tmp_path / "dear.jsonl", 3, 8), rows(tmp_path / "plain.jsonl", 200, 1)]
    result = build(recipe_of(starter, tmp_path, sources), tmp_path / "cache", jobs=1)
    shards = [each for each in result.manifest.shards if each.kind == "documents"]
    assert shards[0].num_tokens > CLEARLY * shards[0].num_last_tokens
