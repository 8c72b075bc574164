// Loading. Rank 0 alone looks at directories and chooses; all ranks read the same checkpoint, and
// give it up together.
#include <tessera/error.hpp>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "base/agreement.hpp"
#include "base/bytes.hpp"
#include "base/check.hpp"
#include "checkpoint/catalog.hpp"
#include "checkpoint/checkpointer_impl.hpp"
#include "checkpoint/restore.hpp"

namespace tessera {

namespace {

constexpr std::size_t kMaxPrintedLines = 20;

// The path and the text of the manifest, as rank 0 tells them.
std::string encode_choice(const std::string& path, const std::string& manifest) {
  std::string choice;
  put_string(choice, path);
  put_string(choice, manifest);
  return choice;
}

std::pair<std::string, Manifest> decode_choice(const std::string& choice) {
  ByteReader reader(choice);
  std::string path(reader.string());
  return {std::move(path), decode_manifest(reader.string())};
}

// The description of the data set, which the cursor does not belong to, where it differs.
std::string data_differences(const StateMap& saved, const StateMap& now) {
  std::string text;
  for (const auto& [key, value] : now) {
    if (!key.starts_with("data.") || key == "data.cursor") continue;
    const auto found = saved.find(key);
    if (found != saved.end() && found->second == value) continue;
    text += fmt::format("{}{} was {} and is {}", text.empty() ? ": " : "; ", key,
                        found == saved.end() ? "absent" : found->second, value);
  }
  return text;
}

// Lines of one text that the other has not, marked by - (saved) and + (now).
std::vector<std::string> changed_lines(const std::string& saved, const std::string& now) {
  const auto lines_of = [](const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  };
  const auto saved_lines = lines_of(saved);
  const auto now_lines = lines_of(now);
  const std::set<std::string> in_saved(saved_lines.begin(), saved_lines.end());
  const std::set<std::string> in_now(now_lines.begin(), now_lines.end());
  std::vector<std::string> changed;
  for (const std::string& line : saved_lines) {
    if (!in_now.contains(line)) changed.push_back("- " + line);
  }
  for (const std::string& line : now_lines) {
    if (!in_saved.contains(line)) changed.push_back("+ " + line);
  }
  return changed;
}

bool differ(const std::string& saved, const std::string& now) {
  return !saved.empty() && !now.empty() && saved != now;
}

}  // namespace

std::optional<std::int64_t> Checkpointer::Impl::load_latest(
    const std::vector<StateSource*>& sources, const VersionTriple& versions,
    const LoadOptions& load_options) {
  Communicator& comm = world.comm();
  for (std::vector<std::string> rejected;;) {
    const std::string choice = decide_on_root(
        comm, "choose a checkpoint", [&] { return choose_newest(directory, rejected, false); });
    if (choice.empty()) return std::nullopt;
    const auto [path, manifest] = decode_choice(choice);
    const auto wanted = check_fit(path, manifest, sources, versions, load_options);
    try {
      agree(comm, "read a checkpoint", [&, &chosen = path, &content = manifest] {
        restore_slices(env, chosen, content, wanted);
      });
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCheckpoint) throw;
      warn(fmt::format("passed over a damaged checkpoint: {}", error.what()));
      rejected.push_back(path);
      continue;
    }
    finish_load(path, manifest, sources);
    return manifest.step;
  }
}

std::int64_t Checkpointer::Impl::load(const std::string& given,
                                      const std::vector<StateSource*>& sources,
                                      const VersionTriple& versions,
                                      const LoadOptions& load_options) {
  Communicator& comm = world.comm();
  const std::string choice = decide_on_root(comm, "choose a checkpoint", [&] {
    if (!env.exists(join_path(given, kManifestName)) && env.is_directory(given) &&
        !find_checkpoints(env, given).empty()) {
      return choose_newest(given, {}, true);
    }
    std::string text;
    inspect_checkpoint(env, given, &text);
    return encode_choice(given, text);
  });
  const auto [path, manifest] = decode_choice(choice);
  const auto wanted = check_fit(path, manifest, sources, versions, load_options);
  agree(comm, "read a checkpoint",
        [&, &chosen = path, &content = manifest] { restore_slices(env, chosen, content, wanted); });
  finish_load(path, manifest, sources);
  return manifest.step;
}

// On the root: the newest sound checkpoint that is not rejected, or "" where there never was one.
std::string Checkpointer::Impl::choose_newest(const std::string& from,
                                              const std::vector<std::string>& rejected,
                                              bool must_exist) {
  std::size_t damaged = 0;
  const auto entries = find_checkpoints(env, from);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (std::find(rejected.begin(), rejected.end(), entry->path) != rejected.end()) {
      ++damaged;
      continue;
    }
    try {
      std::string text;
      inspect_checkpoint(env, *entry, &text);
      return encode_choice(entry->path, text);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCheckpoint) throw;
      if (entry->has_manifest) ++damaged;
      if (rejected.empty()) warn("passed over a checkpoint: " + error.message());
    }
  }
  // To start from scratch without a word where checkpoints were lost would be worse than to stop.
  if (damaged > 0 || must_exist) {
    fail(ErrorCode::kCheckpoint, "none of the checkpoints in '{}' can be loaded", from);
  }
  return {};
}

// Whether the checkpoint fits, the same on all ranks; returns the slices this rank wants.
std::vector<StateSlice> Checkpointer::Impl::check_fit(const std::string& path,
                                                      const Manifest& manifest,
                                                      const std::vector<StateSource*>& sources,
                                                      const VersionTriple& versions,
                                                      const LoadOptions& load_options) {
  std::vector<StateSlice> wanted;
  agree(world.comm(), "compare a checkpoint", [&] {
    for (StateSource* source : sources) {
      auto slices = source->state_to_load();
      std::move(slices.begin(), slices.end(), std::back_inserter(wanted));
    }
    try {
      check_wanted(manifest, wanted);
      if (differ(manifest.versions.model, versions.model)) {
        fail(ErrorCode::kCheckpoint, "the architecture differs");
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCheckpoint) throw;
      throw Error(ErrorCode::kCheckpoint, "the checkpoint is of another model: " + error.message(),
                  path);
    }
    if (differ(manifest.versions.data, versions.data)) {
      StateMap now;
      for (StateSource* source : sources) source->save_common(now);
      const std::string differences = data_differences(manifest.common, now);
      if (!load_options.allow_data_change) {
        throw Error(ErrorCode::kCheckpoint,
                    "the data set is not the one that the checkpoint was trained on" + differences,
                    path);
      }
      warn("going on with another data set" + differences);
    }
  });
  if (is_root() && differ(manifest.versions.config, versions.config)) {
    const auto changed = changed_lines(manifest.config, config);
    world.logger().info(fmt::format("the configuration differs from that of '{}':", path));
    for (std::size_t i = 0; i < std::min(changed.size(), kMaxPrintedLines); ++i) {
      world.logger().info("  " + changed[i]);
    }
    if (changed.size() > kMaxPrintedLines) world.logger().info("  …");
  }
  return wanted;
}

void Checkpointer::Impl::finish_load(const std::string& path, const Manifest& manifest,
                                     const std::vector<StateSource*>& sources) {
  agree(world.comm(), "common state of a checkpoint", [&] {
    for (StateSource* source : sources) source->load_common(manifest.common);
  });
  for (StateSource* source : sources) source->state_loaded();
  // A run that goes on in its own directory also goes on dropping its own old checkpoints.
  namespace fs = std::filesystem;
  if (fs::path(parent_path(path)).lexically_normal() == fs::path(directory).lexically_normal()) {
    run_id = manifest.run_id;
  }
}

}  // namespace tessera
