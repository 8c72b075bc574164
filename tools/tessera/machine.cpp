#include "tessera/machine.hpp"

#include <array>
#include <fstream>

#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace tessera::tool {

namespace {

// A function of a library that the program is linked to, or null.
template <typename Function>
Function* find_function(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
#if defined(__x86_64__)
  // The builtin takes literals only.
  if (__builtin_cpu_supports("avx2")) names.emplace_back("avx2");
  if (__builtin_cpu_supports("fma")) names.emplace_back("fma");
  if (__builtin_cpu_supports("avx512f")) names.emplace_back("avx512f");
  if (__builtin_cpu_supports("avx512bw")) names.emplace_back("avx512bw");
  if (__builtin_cpu_supports("avx512vnni")) names.emplace_back("avx512vnni");
  if (__builtin_cpu_supports("avx512bf16")) names.emplace_back("avx512bf16");
#endif
  return names;
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) {
      const std::size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
      if (value != std::string::npos) return line.substr(value);
    }
  }
  return "unknown";
}

}  // namespace

CpuFacts read_cpu_facts() {
  CpuFacts facts;
  facts.model = cpu_model();
  facts.online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t mask;
  CPU_ZERO(&mask);
  facts.usable = ::sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : facts.online;
  facts.isa = instruction_sets();
  facts.page_bytes = ::sysconf(_SC_PAGESIZE);
  facts.memory_bytes = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * facts.page_bytes;
  return facts;
}

LibraryFacts find_mpi() {
  LibraryFacts facts{"MPI", false, {}};
  // May be called before MPI_Init.
  if (auto* version = find_function<int(char*, int*)>("MPI_Get_library_version")) {
    facts.built_in = true;
    std::array<char, 8192> text{};
    int length = 0;
    if (version(text.data(), &length) == 0) facts.version = first_line(text.data());
  }
  return facts;
}

LibraryFacts find_onednn() {
  struct Version {
    int major, minor, patch;
  };
  LibraryFacts facts{"oneDNN", false, {}};
  if (auto* version = find_function<const Version*()>("dnnl_version")) {
    facts.built_in = true;
    const Version* v = version();
    facts.version = fmt::format("{}.{}.{}", v->major, v->minor, v->patch);
  }
  return facts;
}

LibraryFacts find_zstd() {
  LibraryFacts facts{"zstd", false, {}};
  if (auto* version = find_function<const char*()>("ZSTD_versionString")) {
    facts.built_in = true;
    facts.version = version();
  }
  return facts;
}

std::string nvidia_driver() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  return line;
}

std::int64_t free_shared_memory() {
  struct statvfs facts {};
  if (::statvfs("/dev/shm", &facts) != 0) return -1;
  return static_cast<std::int64_t>(facts.f_bavail) * static_cast<std::int64_t>(facts.f_frsize);
}

}  // namespace tessera::tool
