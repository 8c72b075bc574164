"""Cases for `tools/source_checks.py --self-test`: (path, text, expected part of the one message, or
None for a clean file). All files are planted in one tree."""

COMMENT = "// What this is for.\n#pragma once\n"
RANKS = '#include <vector>\nTEST_CASE("x") {\n'

CASES = [
    # (a) folders
    ("lib/nn/up.cpp", '#include "zero/engine.hpp"\n', "lib/nn may not use lib/zero"),
    ("lib/base/up.cpp", '#include "tensor/tensor.hpp"\n', "lib/base may not use lib/tensor"),
    ("lib/moe/transitive.cpp", '#include "base/check.hpp"\n#include "comm/world.hpp"\n', None),
    ("lib/train/all.cpp", '#include "backend/cpu/cpu.hpp"\n#include "zero/engine.hpp"\n', None),
    ("lib/zero/source.cpp", '#include "checkpoint/state_source.hpp"\n', None),
    (
        "lib/zero/writer.cpp",
        '#include "checkpoint/writer.hpp"\n',
        "lib/zero may not use lib/checkpoint",
    ),
    ("lib/extra/x.cpp", "int x;\n", "not in the folder table"),
    ("lib/stray.cpp", "int x;\n", "belongs into one of its folders"),
    ("lib/base/near.hpp", "#pragma once\n", None),
    ("lib/base/beside.cpp", '#include "near.hpp"\n', "written from lib/"),
    ("lib/base/angle.cpp", "#include <base/near.hpp>\n", 'included as "base/near.hpp"'),
    ("lib/base/quoted.cpp", '#include "tessera/error.hpp"\n', "included as <tessera/error.hpp>"),
    (
        "lib/base/commented.cpp",
        '// #include "zero/engine.hpp"\n/*\n#include "zero/x.hpp"\n*/\n',
        None,
    ),
    (
        "include/tessera/lib.hpp",
        COMMENT + '#include "base/near.hpp"\n',
        "may include only <tessera/",
    ),
    ("examples/lib.cpp", '#include "base/near.hpp"\n', "may include only <tessera/"),
    ("python_bindings/lib.cpp", '#include "base/near.hpp"\n', "may include only <tessera/"),
    ("tools/lib.cpp", '#include "base/near.hpp"\n#include <fmt/format.h>\n', None),
    ("tools/tessera/command.hpp", "#pragma once\n", None),
    ("tools/tessera/main.cpp", '#include "tessera/command.hpp"\n', None),
    # (b) third-party headers
    ("lib/comm/local/mpi.cpp", "#include <mpi.h>\n", "mpi.h may be included only in lib/comm/mpi/"),
    ("lib/comm/mpi/mpi.cpp", "#include <mpi.h>\n", None),
    ("lib/base/cuda.cpp", "#include <cuda_runtime.h>\n", "CUDA, cuDNN and NCCL"),
    ("lib/backend/cpu/nccl.cpp", "#include <nccl.h>\n", "CUDA, cuDNN and NCCL"),
    ("lib/backend/cuda/gemm.cu", "#include <cublasLt.h>\n#include <cudnn.h>\n", None),
    ("tests/gpu/x.cu", "#include <cuda_fp8.h>\n", None),
    ("tests/gpu/x.cpp", "#include <cuda_fp8.h>\n", "CUDA, cuDNN and NCCL"),
    ("lib/train/yaml.cpp", "#include <yaml-cpp/yaml.h>\n", "yaml-cpp may be"),
    ("lib/base/zstd.cpp", "#include <zstd.h>\n", "zstd may be"),
    ("lib/kernels/dnnl.cpp", "#include <oneapi/dnnl/dnnl.hpp>\n", "oneDNN may be"),
    ("lib/kernels/eigen.cpp", "#include <Eigen/Dense>\n", "Eigen may be"),
    ("lib/backend/cpu/gemm.cpp", "#include <Eigen/Dense>\n#include <dnnl.hpp>\n", None),
    ("examples/format.cpp", "#include <fmt/format.h>\n", "fmt may be"),
    ("lib/base/json.hpp", "#pragma once\n#include <nlohmann/json.hpp>\n", "nlohmann-json may be"),
    ("lib/base/format.cpp", "#include <fmt/format.h>\n#include <spdlog/spdlog.h>\n", None),
    ("include/tessera/fmt.hpp", COMMENT + "#include <fmt/format.h>\n", "only std and"),
    ("include/tessera/posix.hpp", COMMENT + "#include <unistd.h>\n", "only std and"),
    # (c) rank bodies
    (
        "tests/comm/direct.cpp",
        RANKS + "  run_ranks(4, [&](int rank) {\n    REQUIRE(rank < 4);\n  });\n}\n",
        "REQUIRE inside",
    ),
    (
        "tests/comm/named.cpp",
        RANKS
        + "  auto body = [&](int rank) {\n    CHECK_FALSE(rank == 9);\n  };\n  run_ranks(4, body);\n}\n",
        "CHECK_FALSE inside",
    ),
    (
        "tests/comm/function.cpp",
        "static void body(int rank) { CHECK(rank < 4); }\n" + RANKS + "  run_ranks(4, body);\n}\n",
        "CHECK inside",
    ),
    (
        "tests/comm/fine.cpp",
        RANKS
        + "  auto r = run_ranks(4, [&](int rank) {\n    TESSERA_CHECK(rank < 4);  // CHECK(x)\n"
        '    log("REQUIRE(x)");\n    return rank;\n  });\n  REQUIRE(r.size() == 4);\n}\n',
        None,
    ),
    # (d) __CUDACC__
    (
        "lib/kernels/cudacc.hpp",
        "#pragma once\n#ifdef __CUDACC__\n#endif\n",
        "__CUDACC__ may be tested",
    ),
    ("lib/base/host_device.hpp", "#pragma once\n#ifdef __CUDACC__\n#endif\n", None),
    # (e) lengths
    ("lib/base/long.cpp", "\n" * 601, "601 lines: over 600"),
    ("lib/base/longish.cpp", "\n" * 401, "401 lines: over 400"),
    # (f) documentation
    ("include/tessera/bare.hpp", "#pragma once\n", "starts with a comment"),
    (
        "include/tessera/type.hpp",
        COMMENT
        + "namespace tessera {\n\nclass TESSERA_API Engine : public Base {\n public:\n  int x();\n};\n}\n",
        "Engine: a public type needs",
    ),
    (
        "include/tessera/enumeration.hpp",
        COMMENT + "namespace tessera {\n\nenum class Color : int { kRed };\n}\n",
        "Color: a public type",
    ),
    (
        "include/tessera/function.hpp",
        COMMENT + "namespace tessera {\n\nTESSERA_API int answer(std::string text = {});\n}\n",
        "answer(): a public function",
    ),
    (
        "include/tessera/method.hpp",
        COMMENT
        + "namespace tessera {\n/// Documented.\nclass E {\n public:\n\n  int undocumented(int x) const;\n  int accessor() const;\n\n"
        " private:\n  int hidden();\n};\n}\n",
        "undocumented(): a public function",
    ),
    (
        "include/tessera/fine.hpp",
        COMMENT
        + "namespace tessera {\nclass Forward;\n/// A.\nclass A {\n public:\n  A();\n  ~A();\n"
        "  /// Group.\n  int a() const { return a_; }\n  int b() const;\n  int c() const;  ///< beside\n\n"
        " private:\n  int hidden();\n  int a_ = 0;\n};\n\n/// S.\nstruct S {\n  int x = f(1);\n"
        "  std::vector<int> y = {1, 2};\n};\n\n/// F.\ntemplate <typename T>\nT f(T t = {}) {\n  return t;\n}\n"
        "inline constexpr int kIgnore = -100;\nusing X = int;\n}  // namespace tessera\n",
        None,
    ),
]
