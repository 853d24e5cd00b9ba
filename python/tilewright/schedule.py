"""Schedules: a Func being transformed, primitive by primitive.

    s = tw.Schedule(tw.te.matmul(512, 512, 512))
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, [None, 6])
    s.reorder(i0, j, k, i1)
    print(s.trace)     # what was done, as text that Schedule.replay takes
    print(s.func)      # the loops as they are now

An illegal primitive raises Error with code TW1401 that locates and suggests; the schedule stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable

from ._core import Loop, Schedule
from .error import Error

__all__ = ["Loop", "Schedule", "name_of_template"]


def name_of_template(template: Callable[[Schedule], bool] | None) -> str:
    """What schedules that were tuned with it are for."""
    if template is None:
        return ""
    if not callable(template):
        raise Error("TW1401", f"{template!r} is no template\nhelp: a function that takes a Schedule and returns a bool")
    return f"{getattr(template, '__module__', '')}.{getattr(template, '__qualname__', type(template).__qualname__)}"
