"""Ctrl-C in a long job that runs in compiled code: once asks it to end, twice ends the call at once."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable
from typing import Any

PATIENCE = 0.5  # seconds that a job has to notice, before the call ends without it


def is_ignored() -> bool:
    """As in jobs that a script or nohup has put into the background: Ctrl-C on the terminal is not for them."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def raise_keyboard_interrupt() -> None:
    """From here on Ctrl-C does so, where it is not ignored."""
    if not is_ignored():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def run_stoppable(
    job: Callable[[Callable[[Any], None], Callable[[], bool]], None],
    receive: Callable[[Any], None],
    on_stopping: Callable[[], None],
) -> None:
    """Runs job(send, is_stopping), and here `receive` on what it sends, in order.

    In the main thread, where Ctrl-C is not ignored, the job gets a thread of its own, since code that is compiled would
    keep Python from hearing of a signal.  The first Ctrl-C calls `on_stopping` at once, and makes is_stopping() true;
    the second raises KeyboardInterrupt here within a second, and in the job's next is_stopping(), of which nobody waits
    for the end.
    """
    if threading.current_thread() is not threading.main_thread() or is_ignored():
        job(receive, lambda: False)
        return
    sent: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
    stopping, cancelled, failures = threading.Event(), threading.Event(), []

    def is_stopping() -> bool:
        if cancelled.is_set():
            raise KeyboardInterrupt
        return stopping.is_set()

    def work() -> None:
        try:
            job(lambda event: sent.put(lambda: receive(event)), is_stopping)
        except BaseException as error:  # noqa: B036  raised where the caller is
            failures.append(error)
        finally:
            sent.put(None)

    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: Any) -> None:
        stopping.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sent.put(on_stopping)

    worker = threading.Thread(target=work, name="tilewright job")
    signal.signal(signal.SIGINT, stop)
    try:
        worker.start()
        while (action := sent.get()) is not None:
            action()
        worker.join()
    except BaseException:
        cancelled.set()
        worker.join(PATIENCE)
        raise
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)  # None: it was not Python's
    if failures:
        raise failures.pop()  # a list that held it would be held by it, and keep what the job had open
