"""datatrove's tokenization of texts: a reader of JSON lines and `DocumentTokenizer`, one task for each process.

Arguments: rows, tokenizer, block length, processes, a folder to work in. It packs and shuffles nothing here: its files hold the
texts one after the other, and training cuts them. A task reads whole files, so the rows are divided among files off the clock.
"""

import json
import sys
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
from prepared import Report
from tokenizers import Tokenizer


def main() -> None:
    rows, name, _, processes, folder = Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:5], Path(sys.argv[5])
    report, tasks = Report(), int(processes)
    tokenizer, tokens = str(name / "tokenizer.json"), folder / "tokens"
    with report.not_counted():
        lines = rows.read_text("utf-8").splitlines(keepends=True)
        (folder / "rows").mkdir()
        for task in range(tasks):
            (folder / "rows" / f"{task}.jsonl").write_text("".join(lines[task::tasks]), "utf-8")
        eos_token = json.loads((name / "tokenizer_config.json").read_text("utf-8"))["eos_token"]
    writer = DocumentTokenizer(str(tokens), tokenizer, eos_token=eos_token, shuffle_documents=False)
    reader = JsonlReader(str(folder / "rows"))
    LocalPipelineExecutor([reader, writer], tasks=tasks, workers=tasks, logging_dir=str(folder / "logs")).run()
    with report.not_counted():
        item_bytes = 2 if Tokenizer.from_file(tokenizer).get_vocab_size() <= 2**16 else 4
        num_tokens = sum(path.stat().st_size for path in tokens.glob("*.ds")) // item_bytes
    report.print(tokens=num_tokens, folder=tokens, libraries=("datatrove", "tokenizers"))


if __name__ == "__main__":
    main()
