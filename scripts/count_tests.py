#!/usr/bin/env python3
"""Sums the JUnit reports of a folder: `tests: N passed, M failed`.

usage: count_tests.py REPORTS [FAILED_STEP...]
The reports of a step are REPORTS/<step>.xml or REPORTS/<step>/*.xml. A failed step without a failed
test in them (a crash, a build) counts as one failure.
"""

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def outcome(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("status") == "notrun":
        return "skipped"
    return "passed"


def count(report: Path) -> Counter[str]:
    try:
        return Counter(outcome(case) for case in ElementTree.parse(report).iter("testcase"))
    except ElementTree.ParseError:  # the program died while it wrote; its step has failed
        return Counter()


def main() -> None:
    reports, failed_steps = Path(sys.argv[1]), sys.argv[2:]
    total: Counter[str] = Counter()
    explained = set()
    for report in sorted(reports.rglob("*.xml")):
        counts = count(report)
        total += counts
        if counts["failed"]:
            explained.add(report.relative_to(reports).parts[0].removesuffix(".xml"))
    total["failed"] += len(set(failed_steps) - explained)
    if total["skipped"]:
        print(f"skipped tests: {total['skipped']}, each with its reason in the logs")
    print(f"tests: {total['passed']} passed, {total['failed']} failed")


if __name__ == "__main__":
    main()
