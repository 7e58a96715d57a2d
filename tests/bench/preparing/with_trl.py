"""TRL's preparation of rows: `datasets.map` over them, the mask from the lengths of two renderings, then `pack_dataset`.

Arguments: rows, tokenizer, block length, processes, a folder to work in. Prompts and completions, the form in which its trainer
learns answers alone under any template; the rows are put into it before the clock runs. Of a dialogue that is the last turn.
"""

import json
import sys
from pathlib import Path
from typing import Any

import datasets
import trl
from prepared import Clock
from transformers import AutoTokenizer


def as_prompt(row: dict[str, Any]) -> dict[str, Any]:
    if "messages" in row:
        last = max(k for k, message in enumerate(row["messages"]) if message["role"] == "assistant")
        return {"prompt": row["messages"][:last], "completion": [row["messages"][last]]}
    question = "\n".join(filter(None, (row["instruction"], row["input"])))
    return {
        "prompt": [{"role": "user", "content": question}],
        "completion": [{"role": "assistant", "content": row["output"]}],
    }


def main() -> None:
    rows, name, block_len, processes, folder = Path(sys.argv[1]), *sys.argv[2:5], Path(sys.argv[5])
    datasets.disable_progress_bars()
    with rows.open(encoding="utf-8") as file, (folder / "rows.jsonl").open("w", encoding="utf-8") as prompts:
        prompts.writelines(json.dumps(as_prompt(json.loads(line))) + "\n" for line in file)
    clock = Clock()
    tokenizer = AutoTokenizer.from_pretrained(name)
    loaded = datasets.load_dataset("json", data_files=str(folder / "rows.jsonl"), cache_dir=str(folder / "hf"))["train"]

    def tokenized(row: dict[str, Any]) -> dict[str, list[int]]:
        prompt = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=True)["input_ids"]
        whole = tokenizer.apply_chat_template(row["prompt"] + row["completion"], return_dict=True)["input_ids"]
        return {"input_ids": whole, "completion_mask": [0] * len(prompt) + [1] * (len(whole) - len(prompt))}

    mapped = loaded.map(tokenized, remove_columns=["prompt", "completion"], num_proc=int(processes))
    packed = trl.pack_dataset(mapped, seq_length=int(block_len), strategy="bfd")
    seconds = clock.seconds()
    tokens = sum(map(len, packed["input_ids"]))
    packed.save_to_disk(str(folder / "packed"))  # what its trainer reads lies in the library's cache: this is its size
    clock.tell(
        seconds=seconds,
        tokens=tokens,
        folder=folder / "packed",
        libraries=("trl", "datasets", "transformers", "tokenizers"),
    )


if __name__ == "__main__":
    main()
