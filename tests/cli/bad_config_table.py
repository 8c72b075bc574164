#!/usr/bin/env python3
"""Runs the tessera command on every row of bad_configs.py. Standard library only.

  bad_config_table.py --tessera PATH [--part configs|commands|data]…

Each run must end with the row's exit code and print nothing on stdout and one line on stderr,
"tessera: error: MESSAGE [PLACE]".
"""

import argparse
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

from bad_configs import COMMAND_LINES, DATA_ROWS, ROWS  # noqa: E402

# What launchers leave in the environment would make this process one rank of their job.
LAUNCHER_PREFIXES = ("OMPI_", "PMIX_", "PMI_", "SLURM_")


def run(tessera, arguments, folder):
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(LAUNCHER_PREFIXES)
    }
    return subprocess.run(
        [tessera, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=120,
        text=True,
        errors="replace",
    )


def problems(result, code, message, place, warnings_allowed=False):
    """What is wrong with a run, as a list of texts."""
    found = []
    if result.returncode != code:
        found.append(f"exit code {result.returncode}, expected {code}")
    if result.stdout:
        found.append(f"stdout is not empty: {result.stdout[:200]!r}")
    lines = result.stderr.splitlines()
    if warnings_allowed:
        lines = [line for line in lines if line.startswith("tessera: error: ")]
    if len(lines) != 1:
        found.append(f"{len(lines)} lines on stderr, expected 1")
    line = lines[0] if lines else ""
    if not line.startswith("tessera: error: "):
        found.append("the line does not start with 'tessera: error: '")
    if message not in line:
        found.append(f"the message does not hold {message!r}")
    if place is not None:
        # A place that ends with a colon is only the beginning of one.
        end = "" if place.endswith(":") else "]"
        if f"[{place}{end}" not in line:
            found.append(f"the place [{place}] is missing")
    if found:
        found.append(f"stderr: {result.stderr.strip()[:600]}")
    return found


def check_configs(tessera, folder):
    for index, (name, text, message, place, options) in enumerate(ROWS):
        path = os.path.join(folder, f"c{index}.yaml")
        if text is ...:
            os.mkdir(path)
        elif text is not None:
            with open(path, "wb") as file:
                file.write(text if isinstance(text, bytes) else text.encode())
        result = run(tessera, ["config", path, *options.get("args", [])], folder)
        yield name, problems(result, options.get("code", 2), message, place.format(file=path))


def check_commands(tessera, folder):
    for name, arguments, message in COMMAND_LINES:
        yield name, problems(run(tessera, arguments, folder), 2, message, None)


def check_data(tessera, folder):
    with open(os.path.join(folder, "text.txt"), "w") as file:
        file.write("The quick brown fox jumps over the lazy dog. " * 91)
    open(os.path.join(folder, "empty.txt"), "w").close()
    with open(os.path.join(folder, "short.txt"), "w") as file:
        file.write("ten bytes.")
    os.mkdir(os.path.join(folder, "folder"))
    locked = os.path.join(folder, "locked.txt")
    with open(locked, "w") as file:
        file.write("x" * 4096)
    os.chmod(locked, 0)
    for index, (name, train, lines, message, code) in enumerate(DATA_ROWS):
        if "locked" in train and os.access(locked, os.R_OK):
            print(f"skipped: {name}: this user may read everything")
            continue
        path = os.path.join(folder, f"d{index}.yaml")
        with open(path, "w") as file:
            file.write(
                "model: {num_layers: 1, hidden_size: 8, num_heads: 1}\n"
                "trainer: {max_steps: 1}\n"
                f"data:\n  train: {train}\n  {lines}\n"
            )
        result = run(tessera, ["train", path, "--ranks", "2"], folder)
        yield name, problems(result, code, message, None, warnings_allowed=True)


PARTS = {"configs": check_configs, "commands": check_commands, "data": check_data}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tessera", required=True)
    parser.add_argument("--part", choices=PARTS, action="append")
    arguments = parser.parse_args()
    tessera = os.path.abspath(arguments.tessera)
    rows = failed = 0
    for part in arguments.part or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            for name, found in PARTS[part](tessera, folder):
                rows += 1
                if found:
                    failed += 1
                    print(f"FAILED: {part}: {name}")
                    for problem in found:
                        print(f"    {problem}")
    print(f"{rows} rows, {failed} failed")
    return 1 if failed or rows == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
