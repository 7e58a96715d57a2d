"""A row schema is one module and one line: what CONTRIBUTING.md says is enough."""

import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

USE = """
import sys
from click.testing import CliRunner
from packer.recipe import ROW_SCHEMAS
ROW_SCHEMAS["riddle"] = "riddle"
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe
from packer_cli.main import cli

tokenizer, *paths = sys.argv[1:]
for path, schema in zip(paths, ("riddle", "auto")):
    recipe = make_recipe({"sources": [{"path": path, "schema": schema}], "tokenizer": tokenizer})
    made = build(recipe, f"{path}-cache", jobs=1).manifest
    print(made.inputs[0].schema, made.totals.kept, made.totals.trained > 0)
print(", riddle" in CliRunner(env={"COLUMNS": "200"}).invoke(cli, ["build", "--help"]).output)
"""


def test_the_schema_of_contributing_is_known_everywhere_by_its_module_and_one_line(tmp_path, starter):
    from written_formats import as_jsonl, as_parquet

    page = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
    (module,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "riddle.py").write_text(module)
    rows = [{"riddle": f"What is {i}?", "hint": "Count.", "solution": f"It is {i}.", "note": [1]} for i in range(9)]
    paths = [tmp_path / "rows.jsonl", tmp_path / "rows.parquet"]
    for path, content in zip(paths, (as_jsonl(rows), as_parquet(rows)), strict=True):
        path.write_bytes(content)
    command = [sys.executable, "-c", USE, starter / "tokenizer", *paths]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["riddle 9 True"] * 2 + ["True"], done.stderr
