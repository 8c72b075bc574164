#!/usr/bin/env python3
"""Summarises one ctest run: `ctest_summary.py JUNIT_FILE LOG_FILE`, where the first was written by
`ctest --output-junit` and the second holds ctest's own output.

Prints skipped tests with their reasons and failed tests with the end of their output, then one line
`passed failed skipped` as three numbers. tools/check adds these up.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree

TAIL_LINES = 40
INVALID_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return ElementTree.fromstring(INVALID_XML.sub("?", file.read()))


def output_of(case):
    return (case.findtext("system-out") or "").strip()


def skip_reason(case):
    """The test's own words: the last line that speaks of skipping, else its last line."""
    if case.get("status") == "disabled":
        return "disabled"
    lines = [line.strip() for line in output_of(case).splitlines() if line.strip()]
    speaking = [line for line in lines if re.search(r"\bskip", line, re.IGNORECASE)]
    if speaking:
        return speaking[-1]
    return lines[-1] if lines else "no reason given"


def is_skipped(case):
    """A test that could not be started (no executable, failed fixture) is a failure, not a skip,
    although ctest writes <skipped> for it too."""
    if case.get("status") == "disabled":
        return True
    element = case.find("skipped")
    return element is not None and (element.get("message") or "").startswith("SKIP_")


def failure_kinds(log_path):
    """{test name: "Timeout", "SEGFAULT", …} from the list at the end of ctest's output."""
    kinds = {}
    with open(log_path, encoding="utf-8", errors="replace") as file:
        for line in file:
            match = re.match(r"\s+\d+ - (.+) \((.+)\)$", line.rstrip())
            if match:
                kinds[match.group(1)] = match.group(2)
    return kinds


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: ctest_summary.py JUNIT_FILE LOG_FILE")
    kinds = failure_kinds(sys.argv[2])
    passed = failed = skipped = 0
    for case in read(sys.argv[1]).iter("testcase"):
        name = case.get("name")
        if case.get("status") == "run":
            passed += 1
        elif is_skipped(case):
            skipped += 1
            print(f"   skipped  {name}: {skip_reason(case)}")
        else:
            failed += 1
            print(f"   FAILED   {name} ({kinds.get(name, case.get('status'))})")
            for line in output_of(case).splitlines()[-TAIL_LINES:]:
                print(f"            | {line}")
    print(passed, failed, skipped)


if __name__ == "__main__":
    main()
