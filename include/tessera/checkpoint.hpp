// Checkpoints: saved by any number of ranks, loaded by any other.
//
// State is keyed by global logical names, never by rank: a state is a named global tensor, a rank
// holds intervals of its row-major flattened form. docs/checkpoint-format.md describes the files.
#pragma once

#include <tessera/export.hpp>
#include <tessera/options.hpp>
#include <tessera/tensor.hpp>
#include <tessera/world.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

class Env;

/// An interval of a named global tensor that this rank holds (to save) or wants (to load).
struct StateSlice {
  std::string name;  ///< "param/NAME", "adam.m/NAME", "adam.v/NAME", …
  DType dtype = DType::kF32;
  Shape shape;             ///< of the whole tensor
  std::int64_t begin = 0;  ///< first element of the interval in the flattened tensor
  Tensor data;             ///< the elements [begin, begin + data.elements()), host-readable
};

/// State that belongs to no tensor (step, schedule, data cursor, …): key → JSON text.
using StateMap = std::map<std::string, std::string>;

/// Something whose state a checkpoint holds.
class TESSERA_API StateSource {
 public:
  virtual ~StateSource() = default;
  /// The intervals to save. Over all ranks every element of every tensor exactly once: replicas are
  /// listed by one rank only. Called between optimizer steps; the data is read before the next.
  virtual std::vector<StateSlice> state_to_save() = 0;
  /// The intervals this rank needs, replicas included. They are overwritten.
  virtual std::vector<StateSlice> state_to_load() = 0;
  /// Common state, equal on all ranks. Keys are prefixed by the source ("engine.step").
  virtual void save_common(StateMap& state) = 0;
  /// Raises Error{kCheckpoint} naming a key that is missing or malformed.
  virtual void load_common(const StateMap& state) = 0;
  /// Called on all ranks after everything was loaded.
  virtual void state_loaded() {}
};

/// Hashes that say what a checkpoint belongs to; compared on load. An empty one is not compared.
struct VersionTriple {
  std::string model;   ///< architecture, names and shapes. Differs: refused.
  std::string data;    ///< data set description. Differs: refused unless allowed.
  std::string config;  ///< resolved YAML and code version. Differs: logged.
};

/// One complete checkpoint in a directory.
struct CheckpointInfo {
  std::string path;
  std::int64_t step = 0;
  bool valid = false;
  std::string problem;  ///< why not valid
};

/// Lists the checkpoints in `directory` by numeric step, oldest first, complete or not. Valid ones
/// have a sound manifest, and shards of the right size, beginning and end; data is not read
/// (verify_checkpoint() does). A missing directory holds none.
TESSERA_API std::vector<CheckpointInfo> list_checkpoints(const std::string& directory);

/// How a checkpoint is loaded.
struct LoadOptions {
  bool allow_data_change = false;  ///< go on with another data set than the one saved with
};

/// Saves, loads and retains the checkpoints of one run. All calls are collective.
/// After a save, `keep_last` complete checkpoints of this run remain, the one just saved among
/// them; those of other runs in the same directory and those of later steps are not removed. A
/// checkpoint of the very step that is saved is replaced, whoever made it.
class TESSERA_API Checkpointer {
 public:
  /// `directory` is made on the first save. `resolved_config` is kept inside each checkpoint.
  Checkpointer(const CheckpointOptions& options, std::string directory, World& world,
               std::string resolved_config = {});
  /// The same over other files than the operating system's. `env` outlives the object.
  Checkpointer(const CheckpointOptions& options, std::string directory, World& world,
               std::string resolved_config, Env& env);
  ~Checkpointer();

  /// Makes the directory and has every rank write a small file there. Raises Error{kData} on all
  /// ranks when one cannot: better at the start of a run than at its first save.
  void check_writable();

  /// Writes step `step` from the sources and publishes it; then drops old ones. Raises
  /// Error{kData} on every rank, naming the first rank's reason, when it could not be written: the
  /// older checkpoints are untouched then. Raises Error{kUsage} when the sources' slices do not
  /// cover every tensor exactly once. The common state is rank 0's.
  void save(std::int64_t step, const std::vector<StateSource*>& sources,
            const VersionTriple& versions);
  /// Loads the newest valid checkpoint, if any, and returns its step. Damaged ones are logged with
  /// the reason and passed over, by all ranks together; Error{kCheckpoint} when all that were
  /// complete are damaged, or the newest sound one does not fit.
  std::optional<std::int64_t> load_latest(const std::vector<StateSource*>& sources,
                                          const VersionTriple& versions,
                                          const LoadOptions& options = {});
  /// Loads the one at `path` (a checkpoint directory, or a directory of them: its newest). Raises
  /// Error{kCheckpoint} on all ranks when it is missing, damaged or does not fit.
  std::int64_t load(const std::string& path, const std::vector<StateSource*>& sources,
                    const VersionTriple& versions, const LoadOptions& options = {});

  const std::string& directory() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The manifest's summary as JSON text. Raises Error{kCheckpoint}.
TESSERA_API std::string describe_checkpoint(const std::string& path);
/// Reads every byte and checks it against the manifest. Raises Error{kCheckpoint} naming the first
/// fault; returns the number of bytes checked.
TESSERA_API std::int64_t verify_checkpoint(const std::string& path);

}  // namespace tessera
