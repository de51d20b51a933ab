# SPDX-License-Identifier: Apache-2.0
"""Tests of style.py: each rule is broken once and must be found, and clean code must pass."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import style  # noqa: E402

HEAD = "// SPDX-License-Identifier: Apache-2.0\n"


def findings(path, text):
    return [finding for _, finding in style.check_file(pathlib.Path(path), text)]


class Style(unittest.TestCase):
    def expect(self, path, text, *parts):
        found = findings(path, text)
        self.assertEqual(len(found), len(parts), found)
        for finding, part in zip(found, parts):
            self.assertIn(part, finding)

    def test_clean_file(self):
        self.expect("src/codec/a.cpp", HEAD + '#include "format/layout.hpp"\n#include <vector>\n')
        self.expect("tests/run.sh", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n")

    def test_lines(self):
        self.expect("src/codec/a.cpp", "int a;\n", "SPDX")
        self.expect("src/codec/a.cpp", HEAD + "//" + "x" * 99 + "\n", "101 columns")
        self.expect("src/codec/a.cpp", HEAD + "\tint a;\n", "a tab")
        self.expect("src/codec/a.cpp", HEAD + "int a; \n", "blanks at the end")
        self.expect("src/codec/a.cpp", HEAD + "int a;", "no newline")
        self.expect("src/codec/a.cpp", HEAD + "int a;\n\n", "an empty line")

    def test_file_length(self):
        text = HEAD + "int a;\n" * 400
        self.expect("src/codec/a.cpp", text, "401 lines")
        self.expect("src/cuda/a.cuh", text)
        self.expect("src/cuda/a.cuh", HEAD + "int a;\n" * 800, "801 lines")

    def test_function_length(self):
        def function(lines, indent=""):
            return f"{indent}void f(int a,\n{indent}       int b) {{\n" + f"{indent}  a = b;\n" * \
                (lines - 3) + f"{indent}}}\n"
        self.expect("src/codec/a.cpp", HEAD + function(70))
        self.expect("src/codec/a.cpp", HEAD + function(71), "a function of 71 lines")
        inside = "class A {\n" + function(40, "  ") + function(40, "  ") + "};\n"
        self.expect("src/codec/a.cpp", HEAD + inside)
        inside = "class A {\n" + function(71, "  ") + "};\n"
        self.expect("src/codec/a.cpp", HEAD + inside, "a function of 71 lines")

    def test_include_direction(self):
        def expect(path, include, *parts):
            self.expect(path, HEAD + f"#include {include}\n", *parts)
        expect("src/judge/a.cpp", '"cuda/launch.hpp"')
        expect("src/cuda/a.cu", '"plan/kernel_table.hpp"')
        expect("tests/unit/a_test.cpp", '"codec/window.hpp"')
        expect("src/codec/a.cpp", '"plan/kernel_table.hpp"', "codec may not include plan")
        expect("src/cpu/a.cpp", '"judge/cases.hpp"', "cpu may not include judge")
        expect("src/tune/a.cpp", '"judge/cases.hpp"')
        expect("src/judge/a.cpp", '"tune/tune.hpp"', "judge may not include tune")
        expect("include/slimgemm/a.hpp", '"format/layout.hpp"', "include may not include format")
        expect("src/codec/a.cpp", '"slimgemm/types.hpp"', "with <>")

    def test_headers_of_others(self):
        def expect(path, include, *parts):
            self.expect(path, HEAD + f"#include {include}\n", *parts)
        expect("src/judge/a.cpp", "<cuda_runtime.h>")
        expect("src/plan/a.cpp", "<cuda_runtime.h>", "CUDA headers")
        expect("tools/slimgemm/a.cpp", "<cublasLt.h>", "CUDA headers")
        expect("src/codec/a.cpp", "<fmt/format.h>", "no fmt")
        expect("src/judge/a.cpp", "<fmt/format.h>")
        expect("include/slimgemm/a.hpp", "<hwy/highway.h>", "standard headers")
        expect("include/slimgemm/a.hpp", "<slimgemm/types.hpp>")


if __name__ == "__main__":
    unittest.main()
