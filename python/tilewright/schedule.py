"""Schedules: a Func being transformed, primitive by primitive.

    s = tw.Schedule(tw.te.matmul(512, 512, 512))
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, [None, 6])
    s.reorder(i0, j, k, i1)
    print(s.trace)     # what was done, as text that Schedule.replay takes
    print(s.func)      # the loops as they are now

An illegal primitive raises Error with code TW1401 that locates and suggests; the schedule stays as it was.
"""

from ._core import Loop, Schedule

__all__ = ["Loop", "Schedule"]
