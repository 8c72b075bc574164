#include "config/yaml_tree.hpp"

#include <tessera/error.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include "config/text_checks.hpp"

namespace tessera::config {

namespace {

constexpr const char* kStringTag = "tag:yaml.org,2002:str";
constexpr std::size_t kMaxDepth = 64;

/// Builds the tree from yaml-cpp's events.
class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, const std::string& source, const Place& origin)
      : text_(text), source_(source), origin_(origin) {}

  /// The tree; raises what was put off until the syntax proved right.
  YamlPointer take_root() const {
    if (pending_) throw *pending_;
    return root_;
  }
  int documents() const { return documents_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      raise(place(mark), "the file holds more than one YAML document; one is expected");
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    auto node = make(YamlNode::Kind::kNull, mark);
    remember(anchor, node);
    add(node, mark);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end() || open_anchors_.count(anchor) != 0) {
      raise(place(mark), "an alias refers to the value that contains it");
    }
    add(found->second, mark);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    auto node = make(YamlNode::Kind::kScalar, mark);
    node->text = value;
    // yaml-cpp marks quoted and block scalars with the tag "!", plain ones with "?" or none.
    node->quoted = tag == "!" || tag == kStringTag;
    if (!node->quoted) check_tag(mark, tag);
    if (node->quoted && has_open_quote(text_, static_cast<std::size_t>(mark.pos))) {
      raise(place(mark), "the quote is not closed on its line");
    }
    remember(anchor, node);
    add(node, mark);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open(make(YamlNode::Kind::kList, mark), mark, anchor);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open(make(YamlNode::Kind::kMap, mark), mark, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    std::shared_ptr<YamlNode> node;
    YAML::anchor_t anchor = 0;
    bool has_key = false;  // kMap: a key was read, its value comes next
    std::string key;
    Place key_place;
  };

  Place place(const YAML::Mark& mark) const {
    Place result = origin_;
    if (result.override_text.empty()) result.line = mark.line + 1;
    return result;
  }

  std::shared_ptr<YamlNode> make(YamlNode::Kind kind, const YAML::Mark& mark) const {
    auto node = std::make_shared<YamlNode>();
    node->kind = kind;
    node->place = place(mark);
    return node;
  }

  [[noreturn]] void raise(const Place& where, const std::string& message) const {
    std::string path;
    for (const Frame& frame : stack_) {
      if (!frame.has_key) continue;
      path += (path.empty() ? "" : ".") + frame.key;
    }
    raise_with_path(where, message, path);
  }

  [[noreturn]] void raise_with_path(const Place& where, const std::string& message,
                                    const std::string& path) const {
    const std::string context = format_place(source_, where);
    throw Error(ErrorCode::kUsage, message, path.empty() ? context : context + ": " + path);
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?" || tag == "!") return;
    constexpr std::string_view kPrefix = "tag:yaml.org,2002:";
    const std::string shown = tag.starts_with(kPrefix) ? "!!" + tag.substr(kPrefix.size()) : tag;
    raise(place(mark), fmt::format("the tag '{}' is not supported", shown));
  }

  void remember(YAML::anchor_t anchor, const YamlPointer& node) {
    if (anchor != 0) anchors_[anchor] = node;
  }

  void open(std::shared_ptr<YamlNode> node, const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (stack_.size() >= kMaxDepth) raise(place(mark), "the values are nested too deeply");
    remember(anchor, node);
    if (anchor != 0) open_anchors_.insert(anchor);
    stack_.push_back(Frame{std::move(node), anchor, false, {}, {}});
  }

  void close() {
    const Frame frame = std::move(stack_.back());
    stack_.pop_back();
    if (frame.anchor != 0) open_anchors_.erase(frame.anchor);
    attach(frame.node);
  }

  bool expects_key() const {
    return !stack_.empty() && stack_.back().node->kind == YamlNode::Kind::kMap &&
           !stack_.back().has_key;
  }

  // An unclosed bracket makes the parser report a key of an odd shape before it sees the true
  // mistake, so that this error waits for the end of the text.
  void refuse_key(const Place& where) {
    Frame& top = stack_.back();
    if (!pending_) {
      pending_.emplace(ErrorCode::kUsage, "a key must be a plain word, not a list, map or null",
                       format_place(source_, where));
    }
    top.has_key = true;
    top.key.clear();
    top.key_place = where;
  }

  void add(const YamlPointer& node, const YAML::Mark& mark) {
    if (!expects_key()) return attach(node);
    set_key(*node, place(mark));
  }

  void set_key(const YamlNode& node, const Place& where) {
    if (node.kind != YamlNode::Kind::kScalar) return refuse_key(where);
    Frame& top = stack_.back();
    top.has_key = true;
    top.key = node.text;
    top.key_place = where;
    if (const YamlNode::Entry* first = top.node->find(node.text)) {
      if (where.line == 0) raise(where, fmt::format("the key '{}' is given twice", node.text));
      raise(where, fmt::format("duplicate key '{}': first on line {}, again on line {}", node.text,
                               first->place.line, where.line));
    }
  }

  void attach(const YamlPointer& node) {
    if (expects_key()) return set_key(*node, node->place);
    if (stack_.empty()) {
      root_ = node;
      return;
    }
    Frame& top = stack_.back();
    if (top.node->kind == YamlNode::Kind::kList) {
      top.node->items.push_back(node);
      return;
    }
    if (top.key == "<<") {
      raise(top.key_place,
            fmt::format("the merge key '<<' is not supported, as it can repeat keys unseen: copy "
                        "what line {} gives",
                        node->place.line));
    }
    top.node->entries.push_back({std::move(top.key), top.key_place, node});
    top.has_key = false;
  }

  std::string_view text_;  // without a byte order mark, as positions count
  const std::string& source_;
  Place origin_;
  int documents_ = 0;
  YamlPointer root_;
  std::vector<Frame> stack_;
  std::map<YAML::anchor_t, YamlPointer> anchors_;
  std::set<YAML::anchor_t> open_anchors_;
  std::optional<Error> pending_;
};

}  // namespace

const YamlNode::Entry* YamlNode::find(std::string_view key) const {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& entry) { return entry.key == key; });
  return found == entries.end() ? nullptr : &*found;
}

std::string YamlNode::describe() const {
  switch (kind) {
    case Kind::kNull: return "null";
    case Kind::kList: return "a list";
    case Kind::kMap: return "a map";
    case Kind::kScalar: break;
  }
  std::string shown = text.size() > 60 ? text.substr(0, 57) + "..." : text;
  std::replace(shown.begin(), shown.end(), '\n', ' ');
  return fmt::format("{} '{}'", quoted ? "the quoted text" : "the text", shown);
}

YamlPointer parse_yaml(std::string_view text, const std::string& source, const Place& origin) {
  const auto raise = [&](int line, const std::string& message) {
    Place place = origin;
    if (place.override_text.empty()) place.line = line;
    throw Error(ErrorCode::kUsage, message, format_place(source, place));
  };
  if (const auto problem = find_text_problem(text)) raise(problem->line, problem->message);

  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  std::istringstream stream{std::string(text)};
  TreeBuilder builder(text, source, origin);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    raise(error.mark.is_null() ? 1 : error.mark.line + 1,
          explain_syntax_error(text, error.mark.line + 1, error.msg));
  }
  return builder.documents() == 0 ? nullptr : builder.take_root();
}

std::string format_place(const std::string& source, const Place& place) {
  if (!place.override_text.empty()) return place.override_text;
  return place.line > 0 ? fmt::format("{}:{}", source, place.line) : source;
}

}  // namespace tessera::config
