"""The page about images, run as it stands with a small model."""

import json
import re
import shlex
from pathlib import Path

import pytest
from command_line import run
from image_models import model_folder, picture

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "images.md"
NAME = "Qwen/Qwen2.5-VL-3B-Instruct"


@pytest.mark.slow
def test_the_page_builds_and_trains(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model_folder(tmp_path / "model")
    (tmp_path / "mllm_demo_data").mkdir()
    rows = []
    for number in range(4):
        (tmp_path / "mllm_demo_data" / f"{number}.jpg").write_bytes(picture(90, 60, format="JPEG", seed=number))
        chat = [
            ("user", "<image>Who are they?"),
            ("assistant", "Two ramps."),
            ("user", "Where?"),
            ("assistant", "Here."),
        ]
        messages = [{"role": role, "content": content} for role, content in chat]
        rows.append({"messages": messages, "images": [f"mllm_demo_data/{number}.jpg"]})
    (tmp_path / "mllm_demo.json").write_text(json.dumps(rows))
    text = PAGE.read_text("utf-8").replace(NAME, str(tmp_path / "model"))
    _, *commands = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    for command in commands:
        run(*shlex.split(command)[1:])
    train, small = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    given: dict = {}
    exec(small, given)
    without = "\n".join(line for line in train.splitlines() if "from_pretrained" not in line)
    exec(
        without.replace("report_to=[]", "report_to=[], use_cpu=True")
        .replace("1e-5", "1e-3")
        .replace(").train()", ")")
        .replace("PackedTrainer(", "trainer = PackedTrainer("),
        given,
    )
    given["trainer"].train()
    losses = [entry["loss"] for entry in given["trainer"].state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]
