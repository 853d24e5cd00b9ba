"""What results say, for people."""

from __future__ import annotations

from collections import Counter

from .comparing import Facts


def is_bad(case: Facts) -> bool:
    return bool(case["status"] != "passed")


def reason_of(case: Facts) -> str:
    """Of a case that did not pass, in a line."""
    if "message" in case:
        return str(case["message"]).splitlines()[0]
    for output in case["outputs"]:
        if "problem" in output:
            return f"{output['name']}: {output['problem']}"
        if output["wrong"]:
            worst = output["worst"]
            of = f" of {', '.join(worst['of'])}" if worst.get("of") else ""
            return (
                f"{output['name']}: {output['wrong']} of {output['elements']} elements; at {worst['index']}{of} "
                f"{worst['actual']} instead of {worst['expected']}"
            )
    return ""


def largest_ulps(case: Facts) -> int:
    return max((int(output.get("largest_ulps", 0)) for output in case.get("outputs", [])), default=0)


def rates_of(case: Facts, copy_rate: float | None) -> Facts:
    """Of a case that was timed: seconds of its kernels, and what moves and is computed in a second of them."""
    kernels = case["kernels"]
    seconds = sum(kernel["seconds"] for kernel in kernels)
    moved = case.get("bytes") or sum(kernel["bytes"] for kernel in kernels)
    operations = case.get("operations") or sum(kernel["operations"] for kernel in kernels)
    return {
        "name": case["name"],
        "seconds": seconds,
        "kernels": len(kernels),
        "bytes_per_second": moved / seconds if seconds else 0.0,
        "operations_per_second": operations / seconds if seconds else 0.0,
        "of_copy": moved / seconds / copy_rate if seconds and copy_rate else None,
    }


def facts_of(results: Facts) -> Facts:
    """What results say in short: the device, cases by kind, those that did not pass and why, and rates."""
    cases, rate = results["cases"], results["ceilings"].get("copy_rate")
    counts: Facts = {}
    for case in cases:
        counts.setdefault(case["kind"], Counter())[case["status"]] += 1
    bad = [case for case in cases if is_bad(case)]
    return {
        **{key: results[key] for key in ("tilewright", "target", "compiler", "is_complete", "device")},
        "copy_rate": rate,
        "counts": counts,
        "failed": [{"name": case["name"], "status": case["status"], "reason": reason_of(case)} for case in bad],
        # How many floats of the type results were off where that is what counts, of operations.
        "ulps": {case["name"]: ulps for case in cases if case["kind"] == "operation" and (ulps := largest_ulps(case))},
        "rates": [rates_of(case, rate) for case in cases if case.get("kernels")],
    }


def aligned(rows: list[list[str]]) -> list[str]:
    """Rows of text, all columns but the last to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return ["  ".join([*(c.rjust(w) for c, w in zip(row, widths)), row[-1]]) for row in rows]  # noqa: B905


def summary(results: Facts, most: int = 40) -> str:
    """The same as text; of cases that did not pass, the first ones."""
    facts = facts_of(results)
    device, rate = facts["device"], facts["copy_rate"]
    end = "" if facts["is_complete"] else "; not all cases were run"
    name = device.get("name") or device["message"].splitlines()[0]
    lines = [f"{name}; cases for {facts['target']} by Tilewright {facts['tilewright']}{end}"]
    if rate:
        lines.append(f"copies within the device: {rate / 1e9:.0f} GB/s read and written")
    for kind, counts in facts["counts"].items():
        lines.append(f"{kind}: " + ", ".join(f"{count} {status}" for status, count in counts.items()))
    failed = facts["failed"]
    if failed:
        lines += ["", *aligned([[row["status"], f"{row['name']}: {row['reason']}"] for row in failed[:most]])]
        lines += [f"… and {len(failed) - most} more"] * (len(failed) > most)
    if facts["rates"]:
        rows = [["µs", "GB/s", "of copy", "TFLOP/s", "kernels", "case"]]
        for row in facts["rates"]:
            numbers = (row["seconds"] * 1e6, row["bytes_per_second"] / 1e9, row["operations_per_second"] / 1e12)
            share = "?" if row["of_copy"] is None else f"{row['of_copy']:.0%}"
            rows.append(
                [f"{numbers[0]:.1f}", f"{numbers[1]:.0f}", share, f"{numbers[2]:.2f}", str(row["kernels"]), row["name"]]
            )
        lines += ["", *aligned(rows)]
    return "\n".join(lines)
