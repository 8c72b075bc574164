#include "config/known_keys.hpp"

#include <tessera/error.hpp>

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "config/schema.hpp"

namespace tessera::config {

namespace {

// Names that users of other systems know, and ours.
constexpr std::array<std::pair<std::string_view, std::string_view>, 24> kForeignNames = {{
    {"learning_rate", "optimizer.lr"},
    {"gradient_clipping", "optimizer.grad_clip"},
    {"max_grad_norm", "optimizer.grad_clip"},
    {"clip_grad", "optimizer.grad_clip"},
    {"stage", "trainer.zero_stage"},
    {"zero_optimization", "trainer.zero_stage"},
    {"train_micro_batch_size_per_gpu", "trainer.micro_batch_size"},
    {"per_device_train_batch_size", "trainer.micro_batch_size"},
    {"batch_size", "trainer.micro_batch_size"},
    {"global_batch_size", "trainer.train_batch_size"},
    {"grad_accum", "trainer.gradient_accumulation_steps"},
    {"accumulation_steps", "trainer.gradient_accumulation_steps"},
    {"steps", "trainer.max_steps"},
    {"train_iters", "trainer.max_steps"},
    {"num_hidden_layers", "model.num_layers"},
    {"num_attention_heads", "model.num_heads"},
    {"num_key_value_heads", "model.num_kv_heads"},
    {"max_position_embeddings", "model.max_seq_len"},
    {"seq_length", "data.seq_len"},
    {"ep_size", "moe.expert_parallel_size"},
    {"num_local_experts", "moe.num_experts"},
    {"k", "moe.top_k"},
    {"dtype", "precision.compute"},
    {"warmup", "scheduler.warmup_steps"},
}};

using Kind = KnownKeys::Kind;

// Walks the schema and keeps the paths.
class Collector final : public SchemaVisitor {
 public:
  std::vector<std::pair<std::string, Kind>> take() { return std::move(paths_); }

  std::int64_t on_integer(std::string_view name, std::int64_t value, const IntegerRule&,
                          std::string_view) override {
    return add(name, Kind::kValue), value;
  }
  double on_number(std::string_view name, double value, const NumberRule&,
                   std::string_view) override {
    return add(name, Kind::kValue), value;
  }
  bool on_boolean(std::string_view name, bool value, std::string_view) override {
    return add(name, Kind::kValue), value;
  }
  std::string on_choice(std::string_view name, const std::string& value, const ChoiceRule&,
                        std::string_view) override {
    return add(name, Kind::kValue), value;
  }
  std::string on_text(std::string_view name, const std::string& value, const TextRule&,
                      std::string_view) override {
    return add(name, Kind::kValue), value;
  }
  std::vector<std::string> on_texts(std::string_view name, const std::vector<std::string>& value,
                                    std::string_view) override {
    return add(name, Kind::kValue), value;
  }
  std::vector<double> on_numbers(std::string_view name, const std::vector<double>& value,
                                 const NumberRule&, std::string_view) override {
    return add(name, Kind::kValue), value;
  }
  void on_future(std::string_view name) override { add(name, Kind::kFuture); }
  bool enter(std::string_view name, bool, bool, std::string_view) override {
    add(name, Kind::kSection);
    stack_.push_back(fmt::format("{}{}.", prefix(), name));
    return true;
  }
  std::size_t enter_list(std::string_view name, std::size_t, std::string_view) override {
    add(name, Kind::kList);
    stack_.push_back(fmt::format("{}{}[]", prefix(), name));
    return 1;
  }
  void enter_item(std::size_t) override { stack_.push_back(prefix() + "."); }
  void leave() override { stack_.pop_back(); }

 private:
  std::string prefix() const { return stack_.empty() ? std::string() : stack_.back(); }
  void add(std::string_view name, Kind kind) {
    paths_.emplace_back(fmt::format("{}{}", prefix(), name), kind);
  }

  std::vector<std::string> stack_;
  std::vector<std::pair<std::string, Kind>> paths_;
};

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }
std::string_view section_of(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

// The largest distance at which two names count as near.
std::size_t tolerance(std::string_view name) {
  return std::max<std::size_t>(1, std::min<std::size_t>(4, name.size() / 3));
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

KnownKeys::KnownKeys() {
  Document document;
  Collector collector;
  describe(document, collector);
  for (auto& [path, kind] : collector.take()) keys_.push_back({std::move(path), kind});
}

const KnownKeys::Known* KnownKeys::find(std::string_view path) const {
  const auto found = std::find_if(keys_.begin(), keys_.end(),
                                  [&](const Known& known) { return known.path == path; });
  return found == keys_.end() ? nullptr : &*found;
}

std::vector<std::string> KnownKeys::value_paths() const {
  std::vector<std::string> paths;
  for (const Known& known : keys_) {
    if (known.kind == Kind::kValue || known.kind == Kind::kList) paths.push_back(known.path);
  }
  return paths;
}

std::string KnownKeys::nearest(const std::string& path) const {
  const std::string_view name = last_part(path);
  const std::string_view section = section_of(path);
  // A near name in the same section, then the same name in another one, then a name of another
  // system, then a near name anywhere.
  std::string best;
  std::size_t best_distance = tolerance(name) + 1;
  const auto search = [&](bool same_section) {
    for (const Known& known : keys_) {
      if (known.kind == Kind::kFuture || (section_of(known.path) == section) != same_section) {
        continue;
      }
      const std::size_t distance = edit_distance(name, last_part(known.path));
      if (distance < best_distance) {
        best = known.path;
        best_distance = distance;
      }
    }
  };
  search(true);
  if (!best.empty()) return best;
  for (const Known& known : keys_) {
    if (known.kind == Kind::kValue && last_part(known.path) == name) return known.path;
  }
  for (const auto& [foreign, ours] : kForeignNames) {
    if (edit_distance(name, foreign) <= tolerance(foreign) / 2) return std::string(ours);
  }
  search(false);
  return best;
}

void KnownKeys::check(const YamlNode& tree, const std::string& source) const {
  check_map(tree, "", "", source);
}

void KnownKeys::check_map(const YamlNode& map, const std::string& pattern, const std::string& path,
                          const std::string& source) const {
  for (const YamlNode::Entry& entry : map.entries) {
    const std::string entry_pattern = pattern + entry.key;
    const std::string entry_path = path + entry.key;
    const Known* known = find(entry_pattern);
    if (known == nullptr || known->kind == Kind::kFuture) {
      const std::string context =
          fmt::format("{}: {}", format_place(source, entry.place), entry_path);
      if (known != nullptr) {
        throw Error(ErrorCode::kUsage,
                    fmt::format("'{}' is not supported in this version", entry_path), context);
      }
      const std::string near = nearest(entry_pattern);
      throw Error(ErrorCode::kUsage,
                  near.empty()
                      ? fmt::format("unknown key '{}'", entry.key)
                      : fmt::format("unknown key '{}'; did you mean '{}'?", entry.key, near),
                  context);
    }
    if (known->kind == Kind::kSection && entry.value->kind == YamlNode::Kind::kMap) {
      check_map(*entry.value, entry_pattern + ".", entry_path + ".", source);
    }
    if (known->kind == Kind::kList && entry.value->kind == YamlNode::Kind::kList) {
      for (std::size_t i = 0; i < entry.value->items.size(); ++i) {
        check_map(*entry.value->items[i], entry_pattern + "[].",
                  fmt::format("{}[{}].", entry_path, i), source);
      }
    }
  }
}

}  // namespace tessera::config
