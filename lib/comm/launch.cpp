#include "comm/launch.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

namespace tessera {

namespace {

std::optional<int> number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto result = std::from_chars(text, end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

struct LauncherVariables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* required;  // must be set as well
};

// Slurm sets its own variables in batch scripts too; only in a step has it started us.
constexpr LauncherVariables kLaunchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "PMI_SIZE"},
    {"PMIx", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "PMIX_RANK"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_TASKS"},
};

// Node identity: a host name may repeat in containers, a boot id may be shared by containers of one
// machine, so both together with the namespace of shared memory would be needed to be exact; for
// counting CPUs the machine is what matters.
std::string machine_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

std::optional<LauncherHint> detect_launcher() {
  for (const LauncherVariables& known : kLaunchers) {
    if (std::getenv(known.required) == nullptr) continue;
    return LauncherHint{known.launcher, number_in(known.rank).value_or(-1),
                        number_in(known.size).value_or(-1)};
  }
  return std::nullopt;
}

bool launched_by_mpi() {
  const std::optional<LauncherHint> hint = detect_launcher();
  // An interactive Slurm step (a shell on a node) is one task without PMI.
  return hint && (hint->launcher != "Slurm" || hint->size > 1);
}

void print_error(int rank, std::string_view message) {
  const std::string prefix = rank > 0 ? fmt::format("[rank {}] ", rank) : std::string();
  const std::string line = fmt::format("{}tessera: error: {}\n", prefix, message);
  // One write: lines of several ranks do not mix.
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = write(STDERR_FILENO, rest.data(), rest.size());
    if (written <= 0) return;
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

CpuSet own_cpus() {
  // The kernel refuses a set that is smaller than its own, so grow until it fits.
  for (int size = 1024; size <= (1 << 20); size *= 4) {
    cpu_set_t* const set = CPU_ALLOC(static_cast<std::size_t>(size));
    if (set == nullptr) return {0};
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(size));
    CpuSet cpus;
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; known && cpu < size; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (known) return cpus;
  }
  return {0};
}

int threads_per_rank(std::span<const CpuSet> node_masks, int rank) {
  CpuSet all;
  std::size_t total = 0;
  for (const CpuSet& mask : node_masks) {
    all.insert(all.end(), mask.begin(), mask.end());
    total += mask.size();
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  const std::size_t own = node_masks[static_cast<std::size_t>(rank)].size();
  const std::size_t share = all.size() == total ? own : all.size() / node_masks.size();
  return std::max(1, static_cast<int>(share));
}

int threads_per_rank(Communicator& communicator) {
  const std::string machine = machine_name();
  std::string record = machine;
  record.push_back('\0');
  for (const int cpu : own_cpus()) record += fmt::format("{} ", cpu);
  const std::vector<std::string> records = communicator.all_gather_bytes(record, "CPU masks");
  std::vector<CpuSet> masks;
  int position = 0;
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    const std::size_t end = records[rank].find('\0');
    if (records[rank].substr(0, end) != machine) continue;
    if (static_cast<int>(rank) == communicator.rank()) position = static_cast<int>(masks.size());
    CpuSet mask;
    const char* text = records[rank].data() + end + 1;
    const char* const last = records[rank].data() + records[rank].size();
    for (int cpu = 0; text < last;) {
      const auto result = std::from_chars(text, last, cpu);
      if (result.ec != std::errc()) break;
      mask.push_back(cpu);
      text = result.ptr + 1;
    }
    masks.push_back(std::move(mask));
  }
  return threads_per_rank(masks, position);
}

int threads_per_local_rank(int ranks) {
  return std::max(1, static_cast<int>(own_cpus().size()) / ranks);
}

}  // namespace tessera
