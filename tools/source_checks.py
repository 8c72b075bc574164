#!/usr/bin/env python3
"""Checks on the sources that no compiler makes. Standard library only.

  tools/source_checks.py              check the tree; one line `file:line: message` a finding
  tools/source_checks.py --self-test  plant one violation of each kind and see each found
  options: --root DIR (default: this checkout), --no-warnings

(a) the folder dependency rule, (b) third-party headers only where they belong, (c) no Catch2 macro
inside a rank body, (d) __CUDACC__ tested in one file only, (e) file lengths, (f) public headers are
documented (types: error; functions: warning, accessors without arguments excepted). Ends with 1
when there is an error; warnings do not count.
"""

import argparse
import os
import re
import sys
import tempfile

sys.dont_write_bytecode = True

from cpp_reader import blank, declarations, line_of, matching  # noqa: E402
from source_checks_cases import CASES  # noqa: E402

# ------------------------------------------------------------------------------------------------
# The rules. Amend these tables together with docs/architecture.md.

# lib folder -> lib folders it may include from. Arrows are transitive, a folder may always include
# from itself, and every folder may include the public headers <tessera/...>.
# lib/backend/* is reached by all others through the operator table declared in lib/kernels, so no
# folder but train includes its headers.
MAY_USE = {
    "base": [],
    "device": ["base"],
    "tensor": ["base", "device"],
    "kernels": ["base", "tensor"],
    "backend": ["device", "tensor", "kernels"],
    "comm": ["base", "device", "tensor"],
    "autograd": ["tensor", "kernels"],
    "nn": ["autograd"],
    "moe": ["nn", "comm"],
    "models": ["nn", "moe"],
    "precision": ["kernels", "comm"],
    "optim": ["kernels", "tensor"],
    "zero": ["nn", "comm", "precision", "optim"],
    "checkpoint": ["base", "tensor", "comm"],
    "data": ["base", "tensor"],
    "config": ["base"],
    "train": ["*"],
}

# Single headers that may be included against the table: {(from folder, header)}.
EXTRA_ARROWS = {
    ("zero", "checkpoint/state_source.hpp"),
    ("data", "checkpoint/state_source.hpp"),
    ("precision", "checkpoint/state_source.hpp"),
    ("moe", "checkpoint/state_source.hpp"),
}

# Top-level folder -> what it may include besides std: "public" is <tessera/...>, "lib" the headers
# of lib/ (for files in lib itself, by the table above), "own" headers of the same top-level folder.
TOP_LEVEL = {
    "include": {"public"},
    "lib": {"public", "lib"},
    "tools": {"public", "lib", "own"},
    "tests": {"public", "lib", "own"},
    "examples": {"public", "own"},
    "python_bindings": {"public", "own"},
}

# (name, pattern of the header's path, path prefixes of the files that may include it).
# A prefix may be followed by "|*.cpp" and the like: then only for files with that ending.
THIRD_PARTY = [
    (
        "CUDA, cuDNN and NCCL headers",
        r"(cuda|cublas|cudnn|cufft|curand|cusparse|cusolver|nccl|nvrtc|nvml|nvToolsExt)\w*(\.h(pp)?|/.*)"
        r"|(cuda|cub|thrust|nvtx3|cooperative_groups|cutlass|cute)/.*"
        r"|cooperative_groups\.h|mma\.h|device_launch_parameters\.h|vector_types\.h",
        ["lib/backend/cuda/", "lib/comm/nccl/", "tests/|*.cu"],
    ),
    ("mpi.h", r"mpi(-ext|cxx)?\.h", ["lib/comm/mpi/"]),
    ("yaml-cpp", r"yaml-cpp/.*", ["lib/config/"]),
    ("zstd", r"zstd\w*\.h|zdict\.h", ["lib/checkpoint/"]),
    ("oneDNN", r"(oneapi/)?dnnl.*", ["lib/backend/cpu/"]),
    ("Eigen", r"(unsupported/)?Eigen/.*", ["lib/backend/cpu/"]),
    ("Catch2", r"catch2?/.*|catch\.hpp", ["tests/"]),
    ("nanobind", r"nanobind/.*|pybind11/.*|Python\.h", ["python_bindings/"]),
    ("spdlog", r"spdlog/.*", ["lib/base/|*.cpp"]),
    ("CLI11", r"CLI/.*", ["lib/train/|*.cpp", "tools/"]),
    ("fmt", r"fmt/.*", ["lib/", "tools/", "tests/"]),
    # The rest only in sources, so that no header of ours pulls them in.
    ("nlohmann-json", r"nlohmann/.*", ["lib/|*.cpp", "tools/", "tests/"]),
    ("xxHash", r"xxh\w*\.h", ["lib/|*.cpp", "tests/"]),
    ("hwloc", r"hwloc(/.*|\.h)", ["lib/|*.cpp"]),
]

# Calls whose function argument runs on several threads at once.
RANK_RUNNERS = ["run_ranks"]

# The one file that may test these macros; __CUDA_ARCH__ also where all code is CUDA's.
CUDACC_FILE = "lib/base/host_device.hpp"
CUDA_ARCH_FOLDER = "lib/backend/cuda/"

# Folder -> (lines from which a warning is given, lines from which it is an error).
LENGTHS = {"lib": (400, 600), "include": (400, 600)}
# Files that are longer for a reason: {path: reason}.
LONG_FILES = {}

SUFFIXES = (".hpp", ".h", ".cpp", ".cc", ".cu", ".cuh", ".inl")

STD_HEADERS = set("""
algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono
cinttypes climits clocale cmath codecvt compare complex concepts condition_variable coroutine csetjmp
csignal cstdarg cstddef cstdint cstdio cstdlib cstring ctime cuchar cwchar cwctype deque exception
execution filesystem format forward_list fstream functional future initializer_list iomanip ios iosfwd
iostream istream iterator latch limits list locale map memory memory_resource mutex new numbers
numeric optional ostream queue random ranges ratio regex scoped_allocator semaphore set shared_mutex
source_location span sstream stack stdexcept stop_token streambuf string string_view strstream
syncstream system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set
utility valarray variant vector version
""".split())


class Source:
    def __init__(self, root, path):
        self.path = path
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            self.text = file.read()
        self.lines = self.text.split("\n")
        self.without_comments = blank(self.text, literals=False)
        self.code = blank(self.text, literals=True)
        self.parts = path.split("/")
        self.top = self.parts[0]

    def includes(self):
        """(line, header, quoted) of each #include."""
        pattern = re.compile(
            r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE
        )
        for match in pattern.finditer(self.without_comments):
            header = match.group(1) or match.group(2)
            yield line_of(self.text, match.start()), header, match.group(1) is not None


def find_sources(root):
    for top in TOP_LEVEL:
        for folder, names, files in os.walk(os.path.join(root, top)):
            names[:] = sorted(n for n in names if not n.startswith(".") and n != "build")
            for name in sorted(files):
                if name.endswith(SUFFIXES):
                    full = os.path.join(folder, name)
                    yield os.path.relpath(full, root).replace(os.sep, "/")


# ------------------------------------------------------------------------------------------------
# The checks. Each yields (line, message), or (line, message, "warning").


def closure(table):
    """{folder: all folders it may include from}, itself included."""
    reachable = {}
    for folder in table:
        seen, todo = set(), [folder]
        while todo:
            current = todo.pop()
            if current not in seen:
                seen.add(current)
                todo.extend(table if "*" in table[current] else table[current])
        reachable[folder] = seen
    return reachable


REACHABLE = closure(MAY_USE)


def prefix_allows(path, rule):
    prefix, _, ending = rule.partition("|*")
    return path.startswith(prefix) and path.endswith(ending)


def third_party_of(header):
    for name, pattern, prefixes in THIRD_PARTY:
        if re.fullmatch(pattern, header):
            return name, prefixes
    return None


def check_third_party(source, root):
    del root
    for line, header, quoted in source.includes():
        if source.top == "include":
            if header not in STD_HEADERS and header.split("/")[0] not in ("tessera", *MAY_USE):
                yield line, f"<{header}>: public headers include only std and <tessera/...>"
            continue
        if quoted and header.split("/")[0] in MAY_USE:
            continue
        found = third_party_of(header)
        if found and not any(prefix_allows(source.path, rule) for rule in found[1]):
            places = ", ".join(rule.replace("|", " ") for rule in found[1])
            yield line, f"<{header}>: {found[0]} may be included only in {places}"


def check_folders(source, root):
    allowed = TOP_LEVEL[source.top]
    folder = None
    if source.top == "lib":
        if len(source.parts) < 3:
            yield 1, "a file in lib/ belongs into one of its folders"
            return
        folder = source.parts[1]
        if folder not in MAY_USE:
            yield 1, f"lib/{folder} is not in the folder table"
            return

    for line, header, quoted in source.includes():
        first = header.split("/")[0]
        shown = f'"{header}"' if quoted else f"<{header}>"
        beside = os.path.join(root, os.path.dirname(source.path), header)
        from_top = os.path.join(root, source.top, header)
        if quoted and "own" in allowed and (os.path.isfile(beside) or os.path.isfile(from_top)):
            continue
        if first == "tessera" and "/" in header:
            if quoted and source.top != "include":
                yield line, f"{shown}: public headers are included as <{header}>"
            continue
        is_lib = first in MAY_USE and "/" in header
        if is_lib and not quoted and third_party_of(header):
            is_lib = False
        if is_lib:
            if "lib" not in allowed:
                yield line, f"{shown}: {source.top}/ may include only <tessera/...>, not lib/{first}"
            elif not quoted:
                yield line, f'{shown}: headers of lib are included as "{header}"'
            elif folder and first not in REACHABLE[folder] and (folder, header) not in EXTRA_ARROWS:
                may = ", ".join(sorted(REACHABLE[folder] - {folder})) or "nothing else"
                yield line, f"{shown}: lib/{folder} may not use lib/{first} (it may use {may})"
        elif quoted and folder:
            if os.path.isfile(beside):
                yield line, f'{shown}: includes are written from lib/, as "{folder}/..."'
            elif third_party_of(header) is None:
                yield line, f"{shown}: neither a header of lib nor of a folder in the table"
        elif quoted and source.top == "include":
            yield line, f"{shown}: public headers are included as <tessera/...>"


CATCH_MACRO = re.compile(
    r"\b((?:REQUIRE|CHECK)(?:_FALSE|_THROWS|_THROWS_AS|_THROWS_WITH|_THROWS_MATCHES|_NOTHROW|_THAT"
    r"|_NOFAIL)?|CHECKED_IF|CHECKED_ELSE|FAIL|FAIL_CHECK|SUCCEED|SECTION|INFO|UNSCOPED_INFO|WARN"
    r"|CAPTURE|GENERATE)\s*\("
)


def rank_bodies(code):
    """(start, end) of the text that a rank runner executes on several threads."""
    call = re.compile(rf"\b(?:{'|'.join(RANK_RUNNERS)})\s*(?:<[^;(){{}}]*>\s*)?\(")
    for match in call.finditer(code):
        start = match.end() - 1
        end = matching(code, start)
        yield start, end
        # Bodies given by name: `auto body = [..](..) {..}`, or a function `body(..) {..}`.
        outside_lambdas = re.sub(r"\{.*\}", " ", code[start + 1 : end - 1], flags=re.DOTALL)
        for argument in outside_lambdas.split(","):
            name = argument.strip()
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                continue
            named = re.compile(
                rf"\b{name}\s*=\s*\[[^\]]*\][^;{{}}]*\{{|[\w>&*]\s+{name}\s*\([^;{{}}]*\)[^;{{}}()]*\{{"
            )
            for definition in named.finditer(code):
                body = definition.end() - 1
                yield body, matching(code, body)


def check_rank_bodies(source, root):
    del root
    if source.top != "tests":
        return
    seen = set()
    for start, end in rank_bodies(source.code):
        for match in CATCH_MACRO.finditer(source.code, start, end):
            if match.start() not in seen:
                seen.add(match.start())
                yield (
                    line_of(source.code, match.start()),
                    f"{match.group(1)} inside a rank body: Catch2 loses assertions made from several"
                    " threads; collect results and assert after the ranks have ended",
                )


def check_cudacc(source, root):
    del root
    if source.path == CUDACC_FILE:
        return
    for number, line in enumerate(source.code.split("\n"), 1):
        for macro in re.findall(r"\b__CUDACC__\b|\b__CUDA_ARCH__\b", line):
            if macro == "__CUDA_ARCH__" and source.path.startswith(CUDA_ARCH_FOLDER):
                continue
            yield number, f"{macro} may be tested only in {CUDACC_FILE}"


def check_length(source, root):
    del root
    if source.top not in LENGTHS or source.path in LONG_FILES:
        return
    warn, limit = LENGTHS[source.top]
    lines = len(source.text.splitlines())
    if lines > limit:
        yield limit + 1, f"{lines} lines: over {limit} needs a reason (LONG_FILES in this script)"
    elif lines > warn:
        yield warn + 1, f"{lines} lines: over {warn} is long", "warning"


def check_documented(source, root):
    del root
    if source.top != "include":
        return
    first = next(
        (
            i
            for i, line in enumerate(source.lines)
            if line.strip() and line.strip() != "#pragma once"
        ),
        None,
    )
    if first is None or not source.lines[first].lstrip().startswith(("//", "/*")):
        yield 1, "a public header starts with a comment that says what it is for"

    def comment_above(number):
        above = source.lines[number - 2].strip() if number >= 2 else ""
        return above.startswith(("//", "/*", "*")) or above.endswith("*/")

    def comment_beside(declaration):
        return any("//" in line for line in source.lines[declaration.start - 1 : declaration.end])

    documented_until = -1  # last line of a documented declaration, for groups without blank lines
    for declaration in declarations(source.code):
        grouped = declaration.start == documented_until + 1
        if (
            declaration.kind == "trivial"
            or comment_above(declaration.start)
            or comment_beside(declaration)
            or (grouped and declaration.kind == "function")
        ):
            documented_until = declaration.last
        elif declaration.kind == "type":
            if not declaration.in_class:
                yield declaration.start, f"{declaration.name}: a public type needs a comment above it"
        else:
            yield declaration.start, f"{declaration.name}(): a public function needs a comment", "warning"


CHECKS = [
    check_folders,
    check_third_party,
    check_rank_bodies,
    check_cudacc,
    check_length,
    check_documented,
]


def findings(root):
    """Sorted (path, line, message, level) of the whole tree."""
    result = []
    for path in find_sources(root):
        source = Source(root, path)
        for check in CHECKS:
            for line, message, *level in check(source, root):
                result.append((path, line, message, level[0] if level else "error"))
    return sorted(result)


def self_test():
    failures = 0
    with tempfile.TemporaryDirectory() as root:
        for path, text, _ in CASES:
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        found = {}
        for path, _, message, _ in findings(root):
            found.setdefault(path, []).append(message)
        for path, _, expected in CASES:
            messages = found.get(path, [])
            if expected is None and messages:
                failures += 1
                print(f"{path}: clean, but reported: {messages}")
            elif expected is not None and not any(expected in message for message in messages):
                failures += 1
                print(f"{path}: expected '{expected}', reported: {messages}")
            elif expected is not None and len(messages) > 1:
                failures += 1
                print(f"{path}: expected one message, reported: {messages}")
    print(f"self-test: {len(CASES) - failures} of {len(CASES)} cases right")
    return failures == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    )
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--no-warnings", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        sys.exit(0 if self_test() else 1)
    errors = 0
    for path, line, message, level in findings(options.root):
        if level == "error":
            errors += 1
            print(f"{path}:{line}: {message}")
        elif not options.no_warnings:
            print(f"{path}:{line}: warning: {message}")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
