#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the house style of every source file: style.py <root of the repository>.

What clang-format and clang-tidy do not see: the SPDX line, the length of files, functions and
lines, blanks, and the direction of includes. Prints one line a finding and exits with 1 if there is
any. CONTRIBUTING.md lists the rules in words.
"""

import pathlib
import re
import sys

SOURCE_FOLDERS = ("include", "src", "tools", "tests", "benchmarks", "examples", "scripts", "cmake",
                  "bindings")
CODE = {".h", ".hpp", ".c", ".cpp", ".cu", ".cuh"}
SCRIPTS = {".py", ".sh", ".cmake"}

LINE_COLUMNS_MAX = 100
FILE_LINES_MAX = 400
KERNEL_FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70

SPDX = "SPDX-License-Identifier: Apache-2.0"

# What the files of a folder may include with quotes, by folder of src; a folder may always include
# itself. The library's folders know nothing of the judge, the lab and the command.
MAY_INCLUDE = {
    "include": set(),
    "support": set(),
    "format": {"support"},
    "codec": {"format", "support"},
    "plan": {"format", "codec", "support"},
    "linear": {"format", "codec", "plan", "support"},
    "cpu": {"format", "codec", "plan", "linear", "support"},
    "cuda": {"format", "codec", "plan", "linear", "support"},
    "checkpoint": {"format", "codec", "support"},
    "report": {"support"},
    "judge": {"checkpoint", "format", "codec", "plan", "linear", "cpu", "cuda", "report",
              "support"},
    "lab": {"checkpoint", "judge", "support"},
    "doctor": {"codec", "plan", "linear", "cpu", "judge", "report", "support"},
    "inspect": {"checkpoint", "format", "codec", "lab", "report", "support"},
    "tune": {"format", "codec", "plan", "linear", "cuda", "judge", "support"},
}
EVERYTHING = set(MAY_INCLUDE) - {"include"}
CUDA_FOLDERS = {"cuda", "judge", "tests", "examples", "bindings"}
CUDA_HEADER = re.compile(r"^(cuda|cublas|driver_types|vector_types|mma|nvrtc)\w*\.h$")
# The library proper is built from the standard library alone.
LIBRARY_FOLDERS = {"include", "support", "format", "codec", "plan", "linear", "cpu", "cuda"}
C_HEADERS = {"stddef.h", "stdint.h"}
TOOL_HEADER = re.compile(r"^(fmt|CLI|nlohmann)/")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def is_code(path):
    return path.suffix in CODE


def source_files(root):
    """Every source file of the repository, tracked or not, without build folders."""
    files = [root / "CMakeLists.txt", root / "Makefile"]
    for folder in SOURCE_FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            known = path.suffix in CODE | SCRIPTS or path.name == "CMakeLists.txt"
            if path.is_file() and known:
                files.append(path)
    return [path for path in files if path.exists()]


def folder_of(relative):
    """The name that the include rules use for a file: a folder of src, or the top folder."""
    parts = relative.parts
    return parts[1] if parts[0] == "src" and len(parts) > 2 else parts[0]


def check_lines(lines):
    head = lines[1:2] if lines and lines[0].startswith("#!") else lines[:1]
    if not head or SPDX not in head[0]:
        yield 1, f"the first line does not say '{SPDX}'"
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_COLUMNS_MAX:
            yield number, f"{len(line)} columns, at most {LINE_COLUMNS_MAX}"
        if "\t" in line:
            yield number, "a tab"
        if line != line.rstrip():
            yield number, "blanks at the end of the line"
    if lines and not lines[-1]:
        yield len(lines), "an empty line at the end of the file"


def check_file_length(relative, lines):
    kernel = relative.parts[:2] == ("src", "cuda") and relative.suffix in {".cu", ".cuh"}
    limit = KERNEL_FILE_LINES_MAX if kernel else FILE_LINES_MAX
    if len(lines) > limit:
        yield limit + 1, f"{len(lines)} lines, at most {limit}"


def check_function_lengths(lines):
    """A function runs from the last line at the indentation of its closing brace to that brace:
    clang-format puts both at the left margin, or inside a class two columns in."""
    for indent in ("", "  "):
        start = 0
        for number, line in enumerate(lines, 1):
            body = line[len(indent):]
            if not line.startswith(indent) or not body or body[0] in " /#)":
                continue
            if body != "}":
                start = number
            elif number - start + 1 > FUNCTION_LINES_MAX:
                length = number - start + 1
                yield start, f"a function of {length} lines, at most {FUNCTION_LINES_MAX}"


def check_include(folder, bracket, header):
    """The finding about one include directive, or None."""
    if TOOL_HEADER.match(header) and folder in LIBRARY_FOLDERS:
        return f"{header}: the library uses no fmt, CLI11 or JSON"
    if CUDA_HEADER.match(header) and folder not in CUDA_FOLDERS:
        return f"{header}: CUDA headers belong to src/cuda and src/judge"
    if bracket == "<":
        if header.startswith("slimgemm/") or folder != "include":
            return None
        if re.match(r"^[a-z_0-9]+$", header) or header in C_HEADERS:
            return None
        return f"{header}: public headers include standard headers and slimgemm/ alone"
    target = header.split("/")[0] if "/" in header else folder
    if target == "slimgemm":
        return f'"{header}": public headers are included with <>'
    if target == folder or folder not in MAY_INCLUDE or target not in EVERYTHING:
        return None
    if target not in MAY_INCLUDE[folder]:
        return f'"{header}": {folder} may not include {target}'
    return None


def check_includes(relative, lines):
    folder = folder_of(relative)
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        finding = check_include(folder, *match.groups()) if match else None
        if finding:
            yield number, finding


def check_file(relative, text):
    """All findings of one file as (line, text)."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    else:
        yield len(lines), "no newline at the end of the file"
    if relative.name == "Makefile":
        lines = [re.sub(r"^\t", "  ", line) for line in lines]
    yield from check_lines(lines)
    yield from check_file_length(relative, lines)
    if is_code(relative):
        yield from check_function_lengths(lines)
        yield from check_includes(relative, lines)


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(sys.argv[1])
    files = source_files(root)
    findings = 0
    for path in files:
        relative = path.relative_to(root)
        for line, finding in check_file(relative, path.read_text(encoding="utf-8")):
            print(f"{relative}:{line}: {finding}")
            findings += 1
    if not any(is_code(path) for path in files):
        print(f"no source files under {root}")
        return 2
    print(f"{len(files)} files, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
