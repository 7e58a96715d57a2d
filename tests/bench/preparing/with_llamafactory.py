"""LLaMA-Factory's preparation of rows, by its own code: arguments parsed, rows converted, tokenized, packed, saved.

Arguments: rows, tokenizer, block length, processes, a folder to work in. As its training would with `tokenized_path`, which is
what a run on several machines needs, and with `neat_packing`, which keeps documents apart as packer's blocks do.
"""

import importlib.machinery
import json
import sys
import types
from pathlib import Path

from prepared import Report

# It imports torchaudio, and uses it to load sound alone: rows of text never get there.
sys.modules["torchaudio"] = types.ModuleType("torchaudio")
sys.modules["torchaudio"].__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)

from llamafactory.data import get_dataset, get_template_and_fix_tokenizer  # noqa: E402
from llamafactory.hparams import get_train_args  # noqa: E402
from llamafactory.model import load_tokenizer  # noqa: E402

CHAT = {
    "formatting": "sharegpt",
    "columns": {"messages": "messages"},
    "tags": {
        "role_tag": "role",
        "content_tag": "content",
        "user_tag": "user",
        "assistant_tag": "assistant",
        "system_tag": "system",
    },
}


def main() -> None:
    rows, tokenizer, block_len, processes, folder = Path(sys.argv[1]), *sys.argv[2:5], Path(sys.argv[5])
    report = Report()
    with rows.open(encoding="utf-8") as file:
        form = CHAT if "messages" in json.loads(next(file)) else {"formatting": "alpaca"}
    info = {"rows": {"file_name": str(rows.absolute()), **form}}
    (folder / "dataset_info.json").write_text(json.dumps(info), "utf-8")
    settings = {
        "stage": "sft",
        "do_train": True,
        "model_name_or_path": tokenizer,
        "template": "llama3",
        "dataset": "rows",
        "dataset_dir": str(folder),
        "cutoff_len": int(block_len),
        "packing": True,
        "neat_packing": True,
        "preprocessing_num_workers": int(processes),
        "tokenized_path": str(folder / "tokenized"),
        "cache_dir": str(folder / "hf"),
        "output_dir": str(folder / "out"),
        "report_to": "none",
    }
    model_args, data_args, training_args, _, _ = get_train_args(settings)
    loaded = load_tokenizer(model_args)
    template = get_template_and_fix_tokenizer(loaded["tokenizer"], data_args)
    module = get_dataset(template, model_args, data_args, training_args, stage="sft", **loaded)
    with report.not_counted():
        # The mask numbers documents from 1; padding has 0.
        masks = module["train_dataset"].with_format("numpy", columns=["attention_mask"])
        tokens = sum(int((batch["attention_mask"] > 0).sum()) for batch in masks.iter(1000))
    report.print(
        tokens=tokens,
        folder=folder / "tokenized",
        libraries=("llamafactory", "datasets", "transformers", "tokenizers"),
    )


if __name__ == "__main__":
    main()
