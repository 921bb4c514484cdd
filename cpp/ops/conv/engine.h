// What makes the products of a convolution. An engine is made for one shape, and reads and writes
// the caller's tensors by their strides and in their dtype.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/cpu.h"
#include "base/dtype.h"
#include "base/ints.h"
#include "ops/common/precision.h"
#include "ops/conv/shape.h"

namespace backops {

// (batch, channels, positions). Data is null where the problem has no use for the tensor.
struct Activation {
  char* data;
  std::int64_t image_stride_bytes, channel_stride_bytes, stride_bytes[kMaxConvRank];

  char* at(std::int64_t image, std::int64_t channel, std::int64_t d, std::int64_t h,
           std::int64_t w) const {
    return data + image * image_stride_bytes + channel * channel_stride_bytes +
           d * stride_bytes[0] + h * stride_bytes[1] + w * stride_bytes[2];
  }
};

// (groups, outputs of a group, inputs of a group, taps).
struct Weights {
  char* data;
  std::int64_t group_outputs;
  std::int64_t group_stride_bytes, output_stride_bytes, input_stride_bytes;
  std::int64_t stride_bytes[kMaxConvRank];

  // The output is counted through all groups, the input from its group on.
  char* at(std::int64_t output, std::int64_t input) const {
    return data + output / group_outputs * group_stride_bytes +
           output % group_outputs * output_stride_bytes + input * input_stride_bytes;
  }
};

struct Bias {
  char* data;
  std::int64_t stride_bytes;
};

struct ConvBuffers {
  Activation output, input;  // what is read
  Weights weight;
  Bias bias;                 // that is added to the input product
  Activation input_product;  // what is made
  Weights weight_product;
  Bias bias_sums;
  char* memory;   // engine_bytes(), aligned to a cache line, shared by all workers
  char* scratch;  // worker_bytes() of the worker's own, likewise aligned
};

class ConvEngine {
 public:
  virtual ~ConvEngine() = default;
  virtual std::string name() const = 0;
  virtual std::size_t engine_bytes() const = 0;
  virtual std::size_t worker_bytes() const = 0;

  // The work is done in phases, one after the other; the tasks of a phase in any order, by any
  // worker, at the same time.
  virtual int phases() const = 0;
  virtual std::int64_t tasks(int phase) const = 0;
  virtual void work(int phase, std::int64_t task, const ConvBuffers& buffers) const noexcept = 0;
  // Whether the phases from this one on have nothing to do, which only the ones before may tell.
  virtual bool is_done(int /*phase*/, const ConvBuffers& /*buffers*/) const { return false; }
};

// How the batch is cut where partial sums must be added up: by the number of threads, or, to get
// the same bits for any number, always alike.
struct ConvCuts {
  int threads;
  bool deterministic;

  std::int64_t parts() const { return deterministic ? kFixedParts : threads; }

 private:
  static constexpr std::int64_t kFixedParts = 4;
};

// Everything an engine is made from.
struct ConvTask {
  ConvShape shape;
  DType dtype;
  Rounding rounding;
  ConvCuts cuts;
  Cpu cpu;
};

}  // namespace backops
