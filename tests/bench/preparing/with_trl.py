"""TRL's preparation of rows: `datasets.map` over them, the mask from the lengths of two renderings, then `pack_dataset`.

Arguments: rows, tokenizer, block length, processes, a folder to work in. Prompts and completions, the form in which its trainer
learns answers alone under any template; the rows are put into it off the clock. Of a dialogue that is the last turn. Texts are
tokenized with the end of sequence behind them.
"""

import json
import sys
from pathlib import Path
from typing import Any

import datasets
import trl
from prepared import Report
from transformers import AutoTokenizer


def as_prompt(row: dict[str, Any]) -> dict[str, Any]:
    """Tools and the arguments of calls as JSON text: Arrow has no column for objects of any keys."""
    if "text" in row:
        return row
    if "messages" in row:
        last = max(k for k, message in enumerate(row["messages"]) if message["role"] == "assistant")
        messages = json.dumps(row["messages"][: last + 1])
        return {"messages": messages, "tools": json.dumps(row.get("tools"))}
    question = "\n".join(filter(None, (row["instruction"], row["input"])))
    messages = json.dumps([{"role": "user", "content": question}, {"role": "assistant", "content": row["output"]}])
    return {"messages": messages, "tools": "null"}


def main() -> None:
    rows, name, block_len, processes, folder = Path(sys.argv[1]), *sys.argv[2:5], Path(sys.argv[5])
    report = Report()
    datasets.disable_progress_bars()
    with report.not_counted(), rows.open(encoding="utf-8") as file, (folder / "rows.jsonl").open("w") as prompts:
        prompts.writelines(json.dumps(as_prompt(json.loads(line))) + "\n" for line in file)
    tokenizer = AutoTokenizer.from_pretrained(name)
    loaded = datasets.load_dataset("json", data_files=str(folder / "rows.jsonl"), cache_dir=str(folder / "hf"))["train"]

    def tokenized(row: dict[str, Any]) -> dict[str, list[int]]:
        if "text" in row:
            return {"input_ids": tokenizer(row["text"] + tokenizer.eos_token)["input_ids"]}
        messages, tools = json.loads(row["messages"]), json.loads(row["tools"])
        prompt = tokenizer.apply_chat_template(messages[:-1], tools=tools, add_generation_prompt=True, return_dict=True)
        whole = tokenizer.apply_chat_template(messages, tools=tools, return_dict=True)["input_ids"]
        num_prompt = len(prompt["input_ids"])
        return {"input_ids": whole, "completion_mask": [0] * num_prompt + [1] * (len(whole) - num_prompt)}

    mapped = loaded.map(tokenized, remove_columns=loaded.column_names, num_proc=int(processes))
    packed = trl.pack_dataset(mapped, seq_length=int(block_len), strategy="bfd")
    with report.not_counted():
        tokens = sum(map(len, packed["input_ids"]))
        # What its trainer reads lies in the library's cache: this is its size.
        packed.save_to_disk(str(folder / "packed"))
    report.print(tokens=tokens, folder=folder / "packed", libraries=("trl", "datasets", "transformers", "tokenizers"))


if __name__ == "__main__":
    main()
