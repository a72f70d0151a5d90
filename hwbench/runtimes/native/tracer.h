// How long each operation of an execution takes.

#pragma once

#include <executorch/runtime/core/event_tracer.h>
#include <executorch/runtime/platform/platform.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hwbench {

namespace et = executorch::runtime;
using executorch::runtime::EValue;

// Collects how long each event of each execution took. Events come in the order in which they start.
class Tracer final : public et::EventTracer {
 public:
  struct Event {
    std::string name;
    std::vector<double> ns;
  };

  void begin() { position_ = 0; }
  void clear() { events_.clear(); }
  const std::vector<Event>& events() const { return events_; }
  // All executions had the same operations.
  bool consistent() const { return consistent_; }

  void create_event_block(const char*) override {}
  et::EventTracerEntry start_profiling(const char* name, et::ChainID, et::DebugHandle) override {
    return start(name);
  }
  et::EventTracerEntry start_profiling_delegate(const char* name, et::DelegateDebugIntId) override {
    return start(name);
  }
  void end_profiling(et::EventTracerEntry entry) override { finish(entry); }
  void end_profiling_delegate(et::EventTracerEntry entry, const void*, size_t) override { finish(entry); }
  void log_profiling_delegate(const char* name, et::DelegateDebugIntId, et_timestamp_t from, et_timestamp_t to,
                              const void*, size_t) override {
    events_[slot(name)].ns.push_back(nanoseconds(to - from));
  }
  void track_allocation(et::AllocatorID, size_t) override {}
  et::AllocatorID track_allocator(const char*) override { return 0; }
  et::Result<bool> log_evalue(const EValue&, et::LoggedEValueType) override { return true; }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId,
                                                    const executorch::aten::Tensor&) override {
    return true;
  }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId,
                                                    const et::ArrayRef<executorch::aten::Tensor>) override {
    return true;
  }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId, const int&) override {
    return true;
  }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId, const bool&) override {
    return true;
  }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId, const double&) override {
    return true;
  }
  void set_delegation_intermediate_output_filter(et::EventTracerFilterBase*) override {}

 private:
  // The graph is static: the k-th event of every execution is the same operation.
  size_t slot(const char* name) {
    if (position_ == events_.size()) events_.push_back({name, {}});
    consistent_ = consistent_ && events_[position_].name == name;
    return position_++;
  }
  et::EventTracerEntry start(const char* name) {
    et::EventTracerEntry entry{};
    entry.event_id = static_cast<int64_t>(slot(name));
    entry.start_time = et::pal_current_ticks();
    return entry;
  }
  void finish(const et::EventTracerEntry& entry) {
    auto at = static_cast<size_t>(entry.event_id);
    // Events of loading end after clear().
    if (at < events_.size()) events_[at].ns.push_back(nanoseconds(et::pal_current_ticks() - entry.start_time));
  }
  static double nanoseconds(et_timestamp_t ticks) {
    auto ratio = et::pal_ticks_to_ns_multiplier();
    return static_cast<double>(ticks) * static_cast<double>(ratio.numerator) / static_cast<double>(ratio.denominator);
  }

  std::vector<Event> events_;
  size_t position_ = 0;
  bool consistent_ = true;
};

}  // namespace hwbench
