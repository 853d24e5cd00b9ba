"""The tutorials run and say what they promise."""

import re
import subprocess
import sys

import tilewright as tw
from conftest import ROOT


def run(path, *arguments) -> str:
    done = subprocess.run([sys.executable, path, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_the_first_runs_a_model():
    text = run(ROOT / "tutorials/01_compile_and_run.py")
    assert "loaded in" in text and "TW1101" in text


def test_the_second_shows_every_step_and_what_the_default_schedule_makes():
    """Each step checks its own answer; how fast they are is not for a test to say."""
    text = run(ROOT / "tutorials/02_schedule_a_matmul.py", "--seconds", "0.01")
    steps = re.findall(r"^(\d)  .*[\d.]+ GFLOP/s +[\d.]+% of peak$", text, re.M)
    assert steps == ["0", "1", "2", "3", "4"]
    trace, loops = re.search(r"Its trace:\n\n(.*)\nThe loops that it makes:\n\n(.*)", text, re.S).groups()
    assert str(tw.Schedule.replay(trace, tw.te.matmul(512, 512, 512)).func).strip() == loops.strip()


def test_the_third_gives_the_same_answer_on_boards():
    text = run(ROOT / "tutorials/03_cross_compile.py")
    assert text.count("largest difference from this CPU") == 2
    assert text.count("TW1202") == 2


def test_no_tutorial_is_left_out():
    names = [path.name for path in (ROOT / "tutorials").glob("*.py")]
    assert sorted(names) == ["01_compile_and_run.py", "02_schedule_a_matmul.py", "03_cross_compile.py"]
