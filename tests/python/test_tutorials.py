"""The tutorials run and say what they promise."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright as tw
from conftest import ROOT


@pytest.fixture(scope="module")
def run(installed):
    """Runs a tutorial with the package as pip installs it, and where no compiler is."""

    def run(name, *arguments) -> str:
        done = installed.run(ROOT / "tutorials" / name, *arguments)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    return run


def test_the_first_runs_a_model(run):
    text = run("01_compile_and_run.py")
    assert "loaded in" in text and "TW1101" in text


def test_the_second_shows_every_step_and_what_the_default_schedule_makes(run):
    """Each step checks its own answer; how fast they are is not for a test to say."""
    text = run("02_schedule_a_matmul.py", "--seconds", "0.01")
    steps = re.findall(r"^(\d)  .*[\d.]+ GFLOP/s +[\d.]+% of peak$", text, re.M)
    assert steps == ["0", "1", "2", "3", "4"]
    trace, loops = re.search(r"Its trace:\n\n(.*)\nThe loops that it makes:\n\n(.*)", text, re.S).groups()
    assert str(tw.Schedule.replay(trace, tw.te.matmul(512, 512, 512)).func).strip() == loops.strip()


def test_the_third_gives_the_same_answer_on_boards(run):
    text = run("03_cross_compile.py")
    assert text.count("largest difference from this CPU") == 2
    assert text.count("TW1202") == 2


def test_the_fourth_tunes_and_reports(run):
    """What it finds depends on the machine; that the answers agree is checked in it."""
    text = run("04_tune_a_model.py", "--budget", "3s")
    assert re.search(r"^3 tasks of a network that takes", text, re.M)
    assert "The two agree." in text
    assert "For another target: 0 kernels with schedules from the database" in text
    assert "</html>" in Path(re.search(r"^Read (.*) from top to bottom", text, re.M)[1]).read_text(encoding="utf-8")


def test_the_fifth_searches_a_template_of_its_own(run):
    text = run("05_a_space_of_your_own.py", "--budget", "3s")
    assert "right answer with its analytic choices" in text
    assert re.search(r"^ +(rows=\d )?vectors=\d+ +takes [\d.]+ of the analytic", text, re.M)
    assert re.search(r"^ours, tuned +[\d.]+ ms$", text, re.M)


def test_the_sixth_computes_with_operators_of_its_own(run):
    text = run("06_an_operator_of_your_own.py")
    assert "TW1003" in text and "example.Smooth" in text
    assert all(float(share) > 99 for share in re.findall(r": ([\d.]+)%", text)) and "+smooth" in text
    assert "ONNX Runtime computes 1 of 3 nodes, in 1 part" in text
    assert re.search(r"^ONNX Runtime takes \d+% of the time", text, re.M)


def test_the_sixth_calls_a_function_in_c_where_there_is_a_compiler():
    tutorial = ROOT / "tutorials/06_an_operator_of_your_own.py"
    done = subprocess.run([sys.executable, tutorial], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and re.search(r"^By the function in C: (99|100)", done.stdout, re.M), done.stderr


def test_the_seventh_finds_what_differs(run):
    text = run("07_find_what_differs.py")
    assert "no node differs" in text
    assert "first: `wave` (Sin)" in text
    assert re.search(r"^With keep_f32=\['embed', 'project'\] the scores are off by \d", text, re.M)
    assert re.search(r"^differs: 6 → \d nodes", text, re.M)


def test_no_tutorial_is_left_out():
    names = [path.name for path in (ROOT / "tutorials").glob("*.py")]
    assert sorted(names) == [
        "01_compile_and_run.py",
        "02_schedule_a_matmul.py",
        "03_cross_compile.py",
        "04_tune_a_model.py",
        "05_a_space_of_your_own.py",
        "06_an_operator_of_your_own.py",
        "07_find_what_differs.py",
    ]
