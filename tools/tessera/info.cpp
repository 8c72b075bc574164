// tessera info
#include <tessera/version.hpp>

#include <cstdlib>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tessera/command.hpp"
#include "tessera/machine.hpp"

namespace tessera::tool {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPageSizeRule =
    "checkpoint blocks are aligned to 2 MiB where the GPU's compute capability is 8.9 or higher "
    "and "
    "its driver reports CUDA 12.2 or later, else to 4 KiB";

std::string launched_by() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return "mpirun (Open MPI)";
  if (std::getenv("PMI_RANK") != nullptr) return "a PMI launcher";
  if (std::getenv("SLURM_STEP_ID") != nullptr) return "srun";
  return "no launcher";
}

Json library(const LibraryFacts& facts) {
  Json json = {{"built_in", facts.built_in}};
  if (!facts.version.empty()) json["version"] = facts.version;
  return json;
}

Json backend(bool built_in, bool usable, const std::string& note) {
  return {{"built_in", built_in}, {"usable", usable}, {"note", note}};
}

Json collect() {
  const CpuFacts cpu = read_cpu_facts();
  const LibraryFacts mpi = find_mpi();
  const LibraryFacts onednn = find_onednn();
  const std::string driver = nvidia_driver();
  Json json;
  json["version"] = version_string();
  json["compiler"] = "gcc-compatible " __VERSION__;
  json["comm"] = {{"local", backend(true, true, "ranks are threads of one process")},
                  {"mpi", backend(mpi.built_in, mpi.built_in, mpi.version)},
                  {"nccl", backend(false, false, "not in this version")}};
  json["device"] = {{"cpu", backend(true, true,
                                    onednn.built_in ? "matrix products by oneDNN " + onednn.version
                                                    : std::string("matrix products by Eigen"))},
                    {"cuda", backend(false, false,
                                     driver.empty() ? "not in this version; no NVIDIA driver"
                                                    : "not in this version; " + driver)}};
  json["compute_types"] = {{"fp32", "native"},
                           {"bf16", "not in this version"},
                           {"fp16", "not in this version"},
                           {"fp8", "not in this version"}};
  json["libraries"] = {{"zstd", library(find_zstd())}, {"oneDNN", library(onednn)}};
  json["cpu"] = {{"model", cpu.model},
                 {"cores_online", cpu.online},
                 {"cores_usable", cpu.usable},
                 {"isa", cpu.isa},
                 {"memory_bytes", cpu.memory_bytes},
                 {"page_bytes", cpu.page_bytes},
                 {"shared_memory_free_bytes", free_shared_memory()}};
  json["threads_per_rank"] = "the usable cores divided by the ranks of this machine, at least 1";
  json["launched_by"] = launched_by();
  json["page_size_rule"] = kPageSizeRule;
  json["page_size"] = 4096;
  return json;
}

std::string describe_backends(const Json& backends, const std::string& kind) {
  std::string text;
  for (const auto& [name, facts] : backends.items()) {
    const std::string note = facts["note"];
    text += fmt::format("{:<16}{}{}\n", kind + " " + name,
                        !facts["built_in"].get<bool>() ? "not built in"
                        : facts["usable"].get<bool>()  ? "usable"
                                                       : "built in, not usable",
                        note.empty() ? "" : ": " + note);
  }
  return text;
}

std::string readable(const Json& json) {
  const Json& cpu = json["cpu"];
  std::string isa;
  for (const std::string name : cpu["isa"]) isa += (isa.empty() ? "" : " ") + name;
  constexpr double kGiB = 1 << 30;
  std::string text = fmt::format("{:<16}{} ({})\n", "tessera", json["version"].get<std::string>(),
                                 json["compiler"].get<std::string>());
  text += describe_backends(json["comm"], "comm");
  text += describe_backends(json["device"], "device");
  for (const auto& [type, state] : json["compute_types"].items()) {
    text += fmt::format("{:<16}{}\n", "compute " + type, state.get<std::string>());
  }
  text += fmt::format("{:<16}{}\n", "cpu", cpu["model"].get<std::string>());
  text += fmt::format("{:<16}{} online, {} usable by this process\n", "cores",
                      cpu["cores_online"].get<int>(), cpu["cores_usable"].get<int>());
  text += fmt::format("{:<16}{}\n", "isa", isa.empty() ? "baseline" : isa);
  text += fmt::format("{:<16}{}\n", "threads", json["threads_per_rank"].get<std::string>());
  text += fmt::format("{:<16}{:.1f} GiB, pages of {} bytes\n", "memory",
                      cpu["memory_bytes"].get<double>() / kGiB, cpu["page_bytes"].get<int>());
  text += fmt::format("{:<16}{:.2f} GiB free\n", "shared memory",
                      cpu["shared_memory_free_bytes"].get<double>() / kGiB);
  text += fmt::format("{:<16}{}\n", "launched by", json["launched_by"].get<std::string>());
  const Json& zstd = json["libraries"]["zstd"];
  text += fmt::format("{:<16}{}\n", "zstd", zstd.value("version", "unknown"));
  text += fmt::format("{:<16}{} here: {}\n", "page size", json["page_size"].get<int>(),
                      json["page_size_rule"].get<std::string>());
  return text;
}

}  // namespace

void add_info(CLI::App& app, Invocation& invocation) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("info", "Versions, backends and facts of this machine");
  command->add_flag("--json", *json, "One JSON object");
  command->callback([json, &invocation] {
    invocation.run = [json] {
      return on_first_rank([&] {
        const Json facts = collect();
        print(*json ? facts.dump() + "\n" : readable(facts));
        return 0;
      });
    };
  });
}

}  // namespace tessera::tool
