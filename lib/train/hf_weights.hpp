// The weights of a Hugging Face directory, seen under Tessera's names and orientation.
//
// Names are those of transformers, except in GPT-2: its c_attn holds q, k and v side by side, and
// the weights of c_attn, c_proj and c_fc are stored [in, out]. The name of the trunk
// ("transformer." or "model.") is missing in files saved from a model without a head.
#pragma once

#include <tessera/import.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/env.hpp"
#include "checkpoint/safetensors.hpp"

namespace tessera {

/// Where the elements of a parameter are: in part `part` of `parts` equal ones, along the outputs.
struct StoredName {
  std::string tensor;
  bool transposed = false;  ///< stored [in, out]
  int part = 0;
  int parts = 1;

  bool operator==(const StoredName&) const = default;
};

/// The place of a parameter (canonical name) in a file of that family with full names.
StoredName stored_name(const std::string& family, const std::string& parameter);

/// True for values that are computed rather than learned, which some files hold: causal masks and
/// rotary frequencies.
bool is_known_buffer(const std::string& tensor);

/// An open directory that was found to fit a model exactly.
class HuggingFaceWeights {
 public:
  /// Opens the files, reads their headers, and compares with `config` and with the parameters of
  /// `model`: all there, of the expected shapes and of a floating-point type, nothing left over. A
  /// tied parameter may be stored under one of its names, or under both with equal values. Raises
  /// Error{kData} otherwise.
  HuggingFaceWeights(Env& env, const std::string& directory, const HuggingFaceConfig& config,
                     Model& model);

  /// Reads elements [begin, begin + count) of a parameter, counted in its own shape, as FP32.
  void read(const std::string& parameter, std::int64_t begin, std::int64_t count,
            float* values) const;

 private:
  struct Source {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
    StoredName name;
    Shape shape;  // of the parameter
  };

  void open_files(Env& env, const std::string& directory);
  Source find(const StoredName& name, const Shape& shape) const;
  static void read_from(const Source& source, std::int64_t begin, std::int64_t count,
                        float* values);
  static void require_equal(const Source& a, const Source& b);

  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> tensors_;  // name → file
  std::map<std::string, Source> sources_;       // parameter → place
};

}  // namespace tessera
