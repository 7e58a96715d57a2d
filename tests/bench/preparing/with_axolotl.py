"""axolotl's preparation of rows, by its own `axolotl preprocess`: config checked, rows loaded, tokenized, filtered, saved.

Arguments: rows, tokenizer, block length, processes, a folder to work in. It packs while it trains, so what is saved are
documents with positions, and its time has no packing in it.
"""

import json
import os
import shutil
import sys
from pathlib import Path

from prepared import Report

# Nothing is sent, and nothing is asked for.
os.environ |= {"AXOLOTL_DO_NOT_TRACK": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}

from axolotl.cli.preprocess import do_cli
from datasets import load_from_disk


def chat_rows(rows: Path, folder: Path) -> Path:
    """Rows as its `type: chat_template` takes them; Alpaca's become chats, as packer makes them."""
    chats = folder / "rows.jsonl"
    with rows.open(encoding="utf-8") as file, chats.open("w", encoding="utf-8") as out:
        for line in file:
            row = json.loads(line)
            if "messages" in row:
                return rows
            question = "\n".join(filter(None, (row["instruction"], row["input"])))
            messages = [{"role": "user", "content": question}, {"role": "assistant", "content": row["output"]}]
            out.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
    return chats


def main() -> None:
    rows, tokenizer, block_len, processes, folder = Path(sys.argv[1]), *sys.argv[2:5], Path(sys.argv[5])
    report = Report()
    with report.not_counted():
        rows = chat_rows(rows, folder)
    model = folder / "model"
    shutil.copytree(tokenizer, model)
    # It reads the model's config before the rows.
    (model / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    settings = {
        "base_model": str(model),
        "datasets": [{"path": str(rows), "type": "chat_template"}],
        "sequence_len": int(block_len),
        "sample_packing": True,
        "attn_implementation": "sdpa",
        "dataset_prepared_path": str(folder / "prepared"),
        "dataset_num_proc": int(processes),
        "output_dir": str(folder / "out"),
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 1,
        "num_epochs": 1,
        "learning_rate": 1e-5,
    }
    config = folder / "config.yaml"
    config.write_text(json.dumps(settings), "utf-8")  # JSON is YAML
    sys.argv[1:] = ["--no_download"]  # it reads the command line too; weights are nothing to rows
    do_cli(str(config))
    with report.not_counted():
        (saved,) = (path.parent for path in (folder / "prepared").glob("*/state.json"))
        rows_saved = load_from_disk(str(saved)).with_format("numpy", columns=["input_ids"])
        tokens = sum(sum(map(len, batch["input_ids"])) for batch in rows_saved.iter(1000))
    report.print(tokens=tokens, folder=saved, libraries=("axolotl", "datasets", "transformers", "tokenizers"))


if __name__ == "__main__":
    main()
