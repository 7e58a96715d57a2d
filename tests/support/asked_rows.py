"""Rows with text that nothing reads, the template of their tests, and what the hints and documents of their builds say."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import twins

from packer.audit.view import view_row
from packer.store.cache import Cache

GAELIC = "Always answer in Gaelic."
ROW = {"instruction": "When does the ferry leave?", "output": "It leaves at six."}
CHAT = {"messages": [{"role": "user", "content": ROW["instruction"]}, {"role": "assistant", "content": ROW["output"]}]}
TEMPLATE = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}" + twins.CHATML.replace(
    "(message.content or '')",
    "('<think>' ~ message.reasoning_content ~ '</think>' if message.reasoning_content else '')"
    " + (message.content or '')"
    " + ((message.tool_calls or []) | map(attribute='function') | map('tojson') | join)",
)


def written(path: Path, *rows: dict[str, Any]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([*rows]), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def said(cache: Path, name: str) -> str:
    with Cache.open(cache) as opened:
        return "".join(run.text for document in view_row(opened, name, 0).documents for run in document.runs)
