// The answers of the runner: one JSON object per line.

#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace hwbench {

// stdout as it was at the start; what libraries print on descriptor 1 goes to stderr.
inline FILE* out = nullptr;

// One JSON object, written and flushed as one line.
class Line {
 public:
  explicit Line(const char* kind) { text("kind", kind); }

  Line& text(const char* key, const std::string& value) { return raw(key, quoted(value)); }
  Line& integer(const char* key, int64_t value) { return raw(key, std::to_string(value)); }

  template <typename T>
  Line& integers(const char* key, const std::vector<T>& values) {
    std::string list;
    for (auto value : values) list += (list.empty() ? "" : ",") + std::to_string(value);
    return raw(key, "[" + list + "]");
  }

  Line& raw(const char* key, const std::string& value) {
    body_ += (body_.empty() ? "\"" : ",\"") + std::string(key) + "\":" + value;
    return *this;
  }

  void write() const {
    if (std::fprintf(out, "{%s}\n", body_.c_str()) < 0 || std::fflush(out) != 0) std::exit(1);
  }

  static std::string quoted(const std::string& value) {
    std::string result = "\"";
    for (unsigned char c : value) {
      char escape[8];
      if (c == '"' || c == '\\') {
        (result += '\\') += static_cast<char>(c);
      } else if (c < 0x20) {
        std::snprintf(escape, sizeof escape, "\\u%04x", c);
        result += escape;
      } else {
        result += static_cast<char>(c);
      }
    }
    return result + '"';
  }

 private:
  std::string body_;
};

}  // namespace hwbench
