"""The page of `tw report`: what it says, and that a browser without a network draws all of it."""

import re
import subprocess

import pytest
from PIL import Image

import tilewright as tw
from tilewright.tuning_charts import Charts, Section, page, spearman

CHARTS = 6
START = 1_700_000_000


def record(task, at, ratio, status="ok", predicted=0.9):
    is_timed = status == "ok"
    return {
        "digest": f"{task}{at}",
        "task": task,
        "decisions": f"tile={at}x2",
        "status": status,
        "detail": "" if is_timed else "<b>because</b>",
        "predicted": predicted,
        "ratio": ratio if is_timed else 0,
        "ratio_low": ratio - 0.02 if is_timed else 0,
        "ratio_high": ratio + 0.02 if is_timed else 0,
        "ratio_to_default": ratio if is_timed else 0,
        "measured_at": START + at,
    }


def section():
    """Two tasks of 4 and 1 ms; the first becomes a quarter faster after a minute, the second never for sure."""
    tasks = [
        {"key": "a", "name": "conv1+relu <1>", "groups": 3, "seconds": 4e-3, "flops": 4e8, "bytes": 1e7},
        {"key": "b", "name": "fc", "groups": 1, "seconds": 1e-3, "flops": 1e6, "bytes": 4e6},
    ]
    records = [
        record("a", 30, 1.2, predicted=1.1),
        record("a", 60, 0.75, predicted=0.8),
        record("a", 70, 0.9, predicted=1.0),
        record("b", 80, 0.99),
        record("b", 81, 0, "crash"),
        record("b", 82, 0, "spill"),
        record("a", 5000, 0.8, predicted=0.85),  # of a later job
    ]
    job = {"started_at": START}
    confirmation = {"verdict": 1, "ratio": 0.82, "measured_at": START + 90}
    return Section(
        "network",
        {"threads": 2, "vector_bits": 512},
        "CPU",
        6e-3,
        tasks,
        1e11,
        1e10,
        [job],
        records,
        [confirmation],
    )


def test_what_the_page_says():
    text = page([section()])
    assert "6.000 → 4.920 ms (-18.0%)" in text
    assert "7: 5 ok, 1 spill, 1 crash" in text
    assert "2, of which 1 have a faster schedule" in text
    assert "&lt;b&gt;because" in text and "<b>because" not in text
    assert text.count("<article>") == CHARTS


def test_pauses_between_jobs_are_no_time_of_tuning():
    assert section().running_seconds() == [30, 60, 70, 80, 81, 82, 83]


def test_only_what_is_faster_beyond_doubt_wins():
    best = section().best()
    assert {task: row["ratio_to_default"] for task, row in best.items()} == {"a": 0.75}


def test_the_latency_falls_when_a_winner_is_found():
    html = Charts(section()).latency()
    assert re.search(r'"y":\[6\.0,6\.0,5\.0,5\.0', html), html[:3000]


@pytest.mark.parametrize(
    "pairs, expected",
    [
        ([(1, 1), (2, 2), (3, 3)], 1),
        ([(1, 3), (2, 2), (3, 1)], -1),
        ([(1, 1), (1, 1), (2, 5), (3, 4)], 7 / 9),
        ([(1, 2), (1, 3), (1, 4)], 0),
        ([(1, 1)], 0),
    ],
)
def test_rank_correlation(pairs, expected):
    assert spearman(pairs) == pytest.approx(expected)


def test_an_empty_database_has_no_page():
    with pytest.raises(tw.Error, match="TW1001.*no jobs"):
        page([])


def chromium(*arguments):
    """Headless, with no network."""
    return subprocess.run(
        [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--virtual-time-budget=20000",
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_browser_draws_every_chart(tmp_path):
    (tmp_path / "report.html").write_text(page([section()]), encoding="utf-8")
    address = (tmp_path / "report.html").as_uri()
    tree = chromium(
        f"--user-data-dir={tmp_path}/profile",
        "--enable-logging=stderr",
        f"--screenshot={tmp_path}/page.png",
        "--window-size=1200,3600",
        "--dump-dom",
        address,
    )
    assert tree.returncode == 0, tree.stderr[-3000:]
    assert "CONSOLE" not in tree.stderr, tree.stderr[-3000:]  # no script failed, nothing was asked of a network
    drawn = re.findall(r'<div[^>]*class="[^"]*js-plotly-plot[^"]*".*?</article>', tree.stdout, re.S)
    assert len(drawn) == CHARTS
    assert all('class="main-svg"' in chart for chart in drawn)
    assert sum("scatterlayer" in chart or "barlayer" in chart for chart in drawn) == CHARTS
    colors = Image.open(tmp_path / "page.png").convert("RGB").getcolors(1 << 24)
    assert {color for count, color in colors if count > 100} >= {
        (0x1D, 0x4E, 0xD8),
        (0xCB, 0xD5, 0xE1),
    }  # after, before
