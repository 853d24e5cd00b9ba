"""Adds up what the test programs of some build directories left in results/*.xml.

    python tests/summary.py build build-sanitize

The first of them is where pytest ran, too.
Prints a row for each program, why cases were skipped, and, last, "N passed, N failed, N skipped".  A program that ended
without a report of its own (a crash, a time-out) counts as one failure.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path


def reason_of(case: ElementTree.Element) -> str:
    """Why it was skipped: pytest gives this as the message, GoogleTest as its last line after the place."""
    skipped = case.find("skipped")
    lines = ((skipped.get("message") or skipped.text or "") if skipped is not None else "").strip().splitlines()
    return lines[-1].strip() if lines else "it does not say why"


def cases(report: Path, reasons: Counter) -> tuple[int, int, int]:
    """Passed, failed and skipped cases of a JUnit file; counts the last by their reasons."""
    passed = failed = skipped = 0
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"} or case.get("status") == "fail":
            failed += 1
        elif "skipped" in kinds or case.get("result") in ("skipped", "suppressed"):
            skipped += 1
            reasons[reason_of(case)] += 1
        else:
            passed += 1
    return passed, failed, skipped


def programs(directory: Path, with_pytest: bool, reasons: Counter):
    """Yields (name, passed, failed, skipped) for each test program run in a build directory."""
    results = directory / "results"
    for case in ElementTree.parse(results / "ctest.xml").iter("testcase"):
        own = results / f"{case.get('name')}.xml"
        counts = list(cases(own, reasons)) if own.exists() else [0, 0, 0]
        ended_well = case.get("status") == "run" and case.find("failure") is None
        text_tests = re.search(r"(\d+) cases in \d+ files, (\d+) failures", case.findtext("system-out") or "")
        if text_tests:
            counts[1] = int(text_tests[2])
            counts[0] = int(text_tests[1]) - counts[1]
        elif not own.exists():
            counts[0 if ended_well else 1] = 1
        elif not ended_well and counts[1] == 0:
            counts[1] = 1
        yield case.get("name"), *counts
    if with_pytest:
        report = results / "pytest.xml"
        yield "pytest", *(cases(report, reasons) if report.exists() else (0, 1, 0))


def main(directories: list[str]) -> int:
    total, reasons = [0, 0, 0], Counter()
    print(f"\n{'':34}{'passed':>8}{'failed':>8}{'skipped':>8}")
    for directory in directories:
        for name, passed, failed, skipped in programs(Path(directory), directory == directories[0], reasons):
            print(f"{directory + '/' + name:34}{passed:8}{failed:8}{skipped:8}")
            total = [sum(pair) for pair in zip(total, (passed, failed, skipped), strict=True)]
    if reasons:
        print("\nskipped:")
    for reason, count in reasons.most_common():
        print(f"{count:6}  {reason}")
    print(f"\n{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 0 if total[0] and not total[1] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
