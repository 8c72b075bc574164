// Facts about this machine and this build, for `tessera info`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::tool {

/// The processor as this process may use it.
struct CpuFacts {
  std::string model;             ///< "unknown" where the system does not say
  int online = 0;                ///< logical cores of the machine
  int usable = 0;                ///< in this process's CPU mask
  std::vector<std::string> isa;  ///< extensions that matter here, such as avx2
  std::int64_t memory_bytes = 0;
  std::int64_t page_bytes = 0;
};
CpuFacts read_cpu_facts();

/// A library that is part of this build, by asking the running program for its symbols.
struct LibraryFacts {
  std::string name;  ///< "oneDNN"
  bool built_in = false;
  std::string version;  ///< empty = not known
};
LibraryFacts find_mpi();
LibraryFacts find_onednn();
LibraryFacts find_zstd();

/// The NVIDIA driver's version line, empty without a driver.
std::string nvidia_driver();
/// Free bytes in /dev/shm, -1 where there is none.
std::int64_t free_shared_memory();

}  // namespace tessera::tool
