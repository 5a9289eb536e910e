"""The examples that need more than the first one: quick runs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
STUDIES = ["milestones", "returns", "shrinking", "fake", "lazy", "guard"]


def study(*arguments, folder):
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / "reward_study.py"), "--workers", "1", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    done = study("--quick", "--results", "out.json", folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "out.json").read_text(encoding="utf-8")), done.stdout


def test_the_reward_study_runs_quickly(quick):
    report, printed = quick
    assert list(report["studies"]) == STUDIES
    assert report["quick"] is True
    assert "published ordering" in printed
    for found in report["studies"].values():
        assert {claim["verdict"] for claim in found["claims"]} <= {"holds", "reversed", "not resolved"}
        for claim in found["claims"]:
            assert claim["low"] <= claim["difference"] <= claim["high"]
        for arm in found["arms"].values():
            for mean, low, high in arm["metrics"].values():
                assert low <= mean <= high
            for curve in arm["curves"].values():
                assert len(set(curve["mean"])) > 1  # else nothing was learned, and comparing means nothing


def test_the_reward_study_can_be_repeated(quick, tmp_path):
    done = study("--quick", "--studies", "lazy", "fake", "--results", "again.json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    again = json.loads((tmp_path / "again.json").read_text(encoding="utf-8"))["studies"]
    for name, found in again.items():
        assert found == quick[0]["studies"][name]


def test_the_reward_study_draws_plots(tmp_path):
    pytest.importorskip("matplotlib")
    done = study("--quick", "--studies", "guard", "--images", "images", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "images" / "reward_study_guard.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_runs(tmp_path):
    text = (ROOT / "docs" / "reward_study.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3


def test_the_kept_results_are_of_a_full_run():
    report = json.loads((ROOT / "benchmarks" / "results" / "reward_study.json").read_text(encoding="utf-8"))
    assert report["quick"] is False
    assert report["size"]["seeds"] >= 10
    assert list(report["studies"]) == STUDIES
    page = (ROOT / "docs" / "reward_study.md").read_text(encoding="utf-8")
    for name, found in report["studies"].items():
        assert f"images/reward_study_{name}.png" in page
        assert (ROOT / "docs" / "images" / f"reward_study_{name}.png").exists()
        for claim in found["claims"]:
            assert (
                f"{claim['difference']:+.3f} ({claim['low']:+.3f} to {claim['high']:+.3f}) | {claim['verdict']}" in page
            )
