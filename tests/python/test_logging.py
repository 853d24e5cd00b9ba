"""What the library says beside its results goes to the logger "tilewright", and `tw` shows its warnings."""

import io
import logging

import pytest
from rich.console import Console

import tilewright as tw
from conftest import small_network
from tilewright import notes, tuning


def test_a_compilation_is_logged_and_not_printed(caplog, capfd):
    with caplog.at_level(logging.DEBUG, "tilewright"):
        executable = tw.compile(tw.load(small_network()))
    assert executable.report() in caplog.text
    assert capfd.readouterr() == ("", "")
    caplog.clear()
    tw.compile(tw.load(small_network()))
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("event", "level", "text"),
    [
        ({"event": "device_lost", "device": "tcp://a:1", "reason": "it is gone"}, "WARNING", "tcp://a:1: it is gone"),
        ({"event": "skipped", "task": "conv", "reason": "it is random"}, "WARNING", "conv: it is random"),
        ({"event": "stopping"}, "INFO", "stopping after the current candidate"),
        ({"event": "trial", "status": "ok"}, "DEBUG", "trial"),
    ],
)
def test_events_of_a_job_have_levels(caplog, event, level, text):
    with caplog.at_level(logging.DEBUG, "tilewright"):
        tuning.log(event)
    (record,) = caplog.records
    assert record.levelname == level and text in record.getMessage()


def test_commands_show_warnings(monkeypatch):
    shown, logger = io.StringIO(), logging.getLogger("tilewright")
    monkeypatch.setattr(notes, "notes", Console(file=shown, markup=False))
    monkeypatch.setattr(logger, "handlers", [])
    notes.show_warnings()
    logger.warning("of [/a] node")
    logging.getLogger("tilewright.executable").warning("of a module")
    logger.info("a detail")
    logging.getLogger("tilewright.tuning").warning("what the progress shows")
    assert shown.getvalue().split("\n") == ["of [/a] node", "of a module", ""]
