// One loaded file.

#pragma once

#include <executorch/extension/data_loader/file_data_loader.h>
#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/extension/tensor/tensor_ptr.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "failure.h"
#include "machine.h"
#include "tracer.h"

namespace hwbench {

using executorch::aten::ScalarType;
using executorch::runtime::Method;
using executorch::runtime::Program;

// splitmix64 (Steele, Lea, Flood 2014): a counter is enough state, so the Python runner draws the same numbers.
inline uint64_t mix(uint64_t counter) {
  uint64_t z = counter * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Fisher-Yates; `counter` goes on from call to call.
template <typename T>
inline void shuffle(std::vector<T>& items, uint64_t& counter) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[mix(++counter) % i]);
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Failure("load", "cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Memory offset of each value in the order N, C, H, W, ... of the axes, for a tensor stored in `dim_order`.
inline std::vector<size_t> offsets(et::Span<const int32_t> sizes, et::Span<const uint8_t> dim_order) {
  std::vector<size_t> strides(sizes.size(), 1), result{0};
  size_t stride = 1;
  for (size_t i = dim_order.size(); i-- > 0;) {
    strides[dim_order[i]] = stride;
    stride *= static_cast<size_t>(sizes[dim_order[i]]);
  }
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    std::vector<size_t> longer;
    for (size_t base : result) {
      for (int32_t i = 0; i < sizes[axis]; ++i) longer.push_back(base + static_cast<size_t>(i) * strides[axis]);
    }
    result = std::move(longer);
  }
  return result;
}

struct Free {
  void operator()(void* pointer) const { std::free(pointer); }
};

// A loaded file, which runs after `make_inputs`.
//
// A file that leaves the memory of its outputs to the caller is a stream: a frame and states go in, and what comes out
// behind the first output are the states for the next frame, in the order in which they go in. Bytes of zeros are zeros
// of each type that states have, float32, float16 and int8.
class Model {
 public:
  Model(const std::string& path, Tracer* tracer) : tracer_(tracer) {
    first_log.clear();
    auto loader = executorch::extension::FileDataLoader::from(path.c_str());
    check(loader.error(), "load");
    loader_.emplace(std::move(*loader));
    auto program = Program::load(&*loader_, Program::Verification::InternalConsistency);
    check(program.error(), "load");
    program_.emplace(std::move(*program));
    auto meta = program_->method_meta("forward");
    check(meta.error(), "load");
    plan_memory(*meta);
    auto method = program_->load_method("forward", &*manager_, tracer);
    check(method.error(), "load");
    method_.emplace(std::move(*method));
  }

  // Makes the inputs that are set before each execution: of the file, or seeded where its name is empty. No part of the
  // time that loading takes.
  void make_inputs(const std::string& input_file) {
    auto meta = program_->method_meta("forward");
    check(meta.error(), "load");
    make_inputs(*meta, input_file);
    if (streams_) make_outputs(*meta);
  }

  // Executes once; the input is set anew because planned memory may have been used for something else meanwhile.
  // Returns the nanoseconds of the execution alone; of a stream with the handing on of its states.
  int64_t run() {
    if (streams_) return next_frame();
    for (size_t i = 0; i < inputs_.size(); ++i) check(method_->set_input(EValue(*inputs_[i]), i), "run");
    if (tracer_ != nullptr) tracer_->begin();
    int64_t start = now_ns();
    Error error = method_->execute();
    int64_t end = now_ns();
    check(error, "run");
    return std::max<int64_t>(end - start, 1);
  }

  // How often the input file feeds the model: for a stream once for each frame that it holds, else once.
  size_t frames() const { return streams_ && !given_.empty() ? given_.size() / (4 * places_.size()) : 1; }

  // Executes a stream on the frame of that number of its input file, with the states behind the one before. As `run`.
  int64_t run_frame(size_t frame) {
    const char* values = given_.data() + 4 * places_.size() * frame;
    for (size_t k = 0; streams_ && !given_.empty() && k < places_.size(); ++k)
      std::memcpy(values_[0].data() + 4 * places_[k], values + 4 * k, 4);
    return run();
  }

  executorch::aten::Tensor output() const {
    if (method_->outputs_size() == 0 || !method_->get_output(0).isTensor()) throw Failure("run", "no tensor comes out");
    auto tensor = method_->get_output(0).toTensor();
    if (tensor.scalar_type() != ScalarType::Float) throw Failure("run", "the output is not float32");
    return tensor;
  }

 private:
  int64_t next_frame() {
    check(method_->set_input(EValue(*inputs_[0]), 0), "run");
    if (tracer_ != nullptr) tracer_->begin();
    const int64_t start = now_ns();
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (i > 0) {
        std::swap(values_[i], renewed_[i]);
        inputs_[i]->unsafeGetTensorImpl()->set_data(values_[i].data());
        check(method_->set_input(EValue(*inputs_[i]), i), "run");
      }
      check(method_->set_output_data_ptr(renewed_[i].data(), renewed_[i].size(), i), "run");
    }
    const Error error = method_->execute();
    const int64_t end = now_ns();
    check(error, "run");
    return std::max<int64_t>(end - start, 1);
  }

  // Memory for what comes out; the states before the first frame are zeros.
  void make_outputs(const et::MethodMeta& meta) {
    if (meta.num_outputs() != meta.num_inputs())
      throw Failure("load", "a stream has as many outputs as inputs, this file has " + std::to_string(meta.num_outputs()) +
                                " and " + std::to_string(meta.num_inputs()));
    for (size_t i = 0; i < meta.num_outputs(); ++i) {
      auto info = meta.output_tensor_meta(i);
      check(info.error(), "load");
      renewed_.emplace_back(info->nbytes(), 0);
      if (i > 0 && (renewed_[i].size() != values_[i].size() || info->scalar_type() != inputs_[i]->scalar_type()))
        throw Failure("load", "output " + std::to_string(i) + " is no state of the size of input " + std::to_string(i));
    }
  }

  void plan_memory(const et::MethodMeta& meta) {
    for (size_t i = 0; i < meta.num_memory_planned_buffers(); ++i) {
      auto size = meta.memory_planned_buffer_size(i);
      check(size.error(), "load");
      size_t bytes = (static_cast<size_t>(*size) + 63) / 64 * 64;
      void* memory = std::aligned_alloc(64, std::max<size_t>(bytes, 64));
      if (memory == nullptr) throw Failure("load", "no memory for a buffer of " + std::to_string(*size) + " bytes");
      arenas_.emplace_back(memory);
      spans_.emplace_back(static_cast<uint8_t*>(memory), static_cast<size_t>(*size));
    }
    planned_.emplace(et::Span<et::Span<uint8_t>>(spans_.data(), spans_.size()));
    manager_.emplace(&allocator_, &*planned_, &temporary_);
  }

  void make_inputs(const et::MethodMeta& meta, const std::string& input_file) {
    given_ = input_file.empty() ? "" : read_file(input_file);
    const auto first_output = meta.output_tensor_meta(0);
    streams_ = first_output.ok() && !first_output->is_memory_planned();
    uint64_t counter = 0;
    for (size_t i = 0; i < meta.num_inputs(); ++i) {
      auto info = meta.input_tensor_meta(i);
      check(info.error(), "load");
      const bool state = streams_ && i > 0;
      const ScalarType type = info->scalar_type();
      if (type != ScalarType::Float && !(state && (type == ScalarType::Half || type == ScalarType::Char)))
        throw Failure("load", "input " + std::to_string(i) + " is not float32");
      auto where = offsets(info->sizes(), info->dim_order());
      auto& values = values_.emplace_back(info->nbytes(), 0);
      const bool whole = streams_ ? !given_.empty() && given_.size() % (4 * where.size()) == 0
                                  : meta.num_inputs() == 1 && given_.size() == 4 * where.size();
      if (!input_file.empty() && !state && !whole)
        throw Failure("load", "the input needs " + std::to_string(4 * where.size()) + " bytes" +
                                  (streams_ ? " a frame" : "") + ", the file has " + std::to_string(given_.size()));
      for (size_t k = 0; !state && k < where.size(); ++k) {
        // Uniform in [-1, 1) with 24 bits, exact in float32.
        float value = static_cast<float>(mix(++counter) >> 40) / 8388608.0F - 1.0F;
        if (!input_file.empty()) std::memcpy(&value, given_.data() + 4 * k, 4);
        std::memcpy(values.data() + 4 * where[k], &value, 4);
      }
      if (i == 0) places_ = std::move(where);
      auto sizes = info->sizes();
      auto order = info->dim_order();
      inputs_.push_back(executorch::extension::make_tensor_ptr({sizes.begin(), sizes.end()}, values.data(),
                                                               {order.begin(), order.end()}, {}, type));
    }
  }

  Tracer* tracer_;
  std::optional<executorch::extension::FileDataLoader> loader_;
  std::optional<Program> program_;
  std::vector<std::unique_ptr<void, Free>> arenas_;
  std::vector<et::Span<uint8_t>> spans_;
  std::optional<et::HierarchicalAllocator> planned_;
  executorch::extension::MallocMemoryAllocator allocator_, temporary_;
  std::optional<et::MemoryManager> manager_;
  std::optional<Method> method_;
  bool streams_ = false;
  std::string given_;
  std::vector<size_t> places_;  // of the values of the first input, in the order of its axes
  std::vector<std::vector<char>> values_, renewed_;  // bytes of float32; of states as they are
  std::vector<executorch::extension::TensorPtr> inputs_;
};

}  // namespace hwbench
