"""`packer build --json` says where the time went."""

import pytest
from command_line import fields, run

STAGES = ["load", "read", "render", "tokenize", "supervise", "write"]
PARTS = ["plan", "documents", "blocks", "commit"]


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_profile_has_every_part_and_every_stage(starter, tmp_path, jobs):
    asked = ("build", "-c", starter / "recipe.yaml", "-o", tmp_path / "cache", "-j", jobs)
    told = fields(*asked)
    profile = told["profile"]
    assert list(profile["parts"]) == PARTS
    assert sorted(profile["stages"]) == sorted(STAGES)
    assert profile["processes"] == jobs
    assert 0 < sum(profile["parts"].values()) <= told["seconds"] + 0.01
    assert min(profile["idle"], *profile["stages"].values()) >= 0
    both = sum(profile["stages"].values()) + profile["idle"]
    assert both == pytest.approx(jobs * profile["parts"]["documents"], abs=0.01)


def test_a_build_that_has_nothing_to_do_has_no_profile(starter, tmp_path):
    asked = ("build", "-c", starter / "recipe.yaml", "-o", tmp_path / "cache", "-j", 1)
    run(*asked)
    assert fields(*asked)["profile"] == {"parts": {}, "stages": {}, "idle": 0, "processes": 0}
