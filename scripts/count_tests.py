#!/usr/bin/env python3
"""Sums the JUnit reports of a folder: `tests: N passed, M failed`.

usage: count_tests.py REPORTS [FAILED_STEP...]
A failed step without a failed test in the reports (a crash, a build) counts as one failure.
"""

import sys
from pathlib import Path
from xml.etree import ElementTree


def main() -> None:
    reports, failed_steps = Path(sys.argv[1]), sys.argv[2:]
    passed = failed = skipped = 0
    for report in sorted(reports.rglob("*.xml")):
        for case in ElementTree.parse(report).iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
            elif case.find("skipped") is not None or case.get("status") == "notrun":
                skipped += 1
            else:
                passed += 1
    if skipped:
        print(f"skipped tests: {skipped}, each with its reason in the logs")
    print(f"tests: {passed} passed, {max(failed, len(failed_steps))} failed")


if __name__ == "__main__":
    main()
