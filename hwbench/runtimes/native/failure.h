// What may go wrong with a file, and what the engine says about it.

#pragma once

#include <executorch/runtime/core/error.h>
#include <executorch/runtime/platform/platform.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>

namespace hwbench {

using executorch::runtime::Error;

// A file that does not load or does not run, or whose output cannot be written. `stage` is "load", "run" or "write".
struct Failure : std::runtime_error {
  Failure(std::string stage_, const std::string& reason) : std::runtime_error(reason), stage(std::move(stage_)) {}
  std::string stage;
};

// The first error that the engine logged since the last reset: the innermost, so the most exact one.
inline std::string first_log;

inline void keep_log(et_timestamp_t, et_pal_log_level_t level, const char* file, const char*, size_t line,
                     const char* message, size_t) {
  if (level != et_pal_log_level_t::kError && level != et_pal_log_level_t::kFatal) return;
  if (first_log.empty()) first_log = message;
  std::fprintf(stderr, "%s:%zu] %s\n", file, line, message);
}

inline void check(Error error, const char* stage) {
  if (error == Error::Ok) return;
  char code[16];
  std::snprintf(code, sizeof code, " (0x%02x)", static_cast<unsigned>(error));
  std::string name = executorch::runtime::to_string(error);
  name = name.substr(name.rfind(':') + 1);
  throw Failure(stage, name + code + (first_log.empty() ? "" : ": " + first_log));
}

}  // namespace hwbench
