// What computes the gradients. Most engines work on dense copies of the tensors, in the type of the
// sums; some read and write the tensors themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/isa.h"
#include "kernels/conv/conv.h"
#include "ops/conv_backward.h"
#include "ops/precision.h"

namespace backops {

constexpr std::size_t kLineBytes = 64;

// Buffers of a workspace start on cache lines.
constexpr std::size_t whole_lines(std::size_t bytes) {
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

// A problem with all three spatial axes; those it does not have are of size 1.
struct ConvShape {
  std::int64_t batch, channels, outputs, groups;
  std::int64_t in[kMaxConvRank], out[kMaxConvRank], kernel[kMaxConvRank];
  std::int64_t stride[kMaxConvRank], padding[kMaxConvRank], dilation[kMaxConvRank];
  bool wants_input, wants_weight, wants_bias;
  bool is_double;  // sums are float64, otherwise float32

  std::int64_t in_positions() const { return in[0] * in[1] * in[2]; }
  std::int64_t out_positions() const { return out[0] * out[1] * out[2]; }
  std::int64_t in_image() const { return in_positions() * channels; }
  std::int64_t out_image() const { return out_positions() * outputs; }
  std::int64_t kernel_positions() const { return kernel[0] * kernel[1] * kernel[2]; }
  std::int64_t weights() const { return outputs * (channels / groups) * kernel_positions(); }
  std::size_t sum_bytes() const { return is_double ? sizeof(double) : sizeof(float); }
};

// How an engine wants grad_output, input and grad_input.
enum class Activations : std::uint8_t {
  channels_last,  // dense sums, (batch, positions, channels)
  tensors,        // as the caller gave them
};

struct Activation {
  char* data;
  // Those of the caller's tensor; of no meaning for a dense copy.
  std::int64_t image_stride_bytes, channel_stride_bytes, stride_bytes[kMaxConvRank];
};

// Weights are (outputs, channels per group, positions), dense sums. Data is null where the problem
// has no use for it.
struct ConvBuffers {
  Activation grad_output, input, grad_input;
  const void* weight;
  void* grad_weight;
  void* grad_bias;
  char* memory;   // engine_bytes(), aligned to a cache line, shared by all workers
  char* scratch;  // worker_bytes() of the worker's own, likewise aligned
};

class ConvEngine {
 public:
  virtual ~ConvEngine() = default;
  virtual std::string name() const = 0;
  virtual Activations activations() const { return Activations::channels_last; }
  virtual std::size_t engine_bytes() const = 0;
  virtual std::size_t worker_bytes() const = 0;

  // The work is done in phases, one after the other; the tasks of a phase in any order, by any
  // worker, at the same time. False where memory ran out.
  virtual int phases() const = 0;
  virtual std::int64_t tasks(int phase) const = 0;
  virtual bool work(int phase, std::int64_t task, const ConvBuffers& buffers) const noexcept = 0;
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

// Null for problems that have not enough groups to fill vectors with, or more channels than that in
// a group.
std::unique_ptr<const ConvEngine> make_lanes_engine(const ConvShape& shape,
                                                    std::int64_t most_channels, int threads,
                                                    Rounding rounding, DType dtype, Isa isa);
// Null where lanes without a channel would make it more than so many times the multiplications, and
// for some rare problems.
std::unique_ptr<const ConvEngine> make_blocks_engine(const ConvShape& shape, double most_waste,
                                                     const ConvCuts& cuts, Rounding rounding,
                                                     DType dtype, Isa isa);
// On instruction sets that multiply matrices, for problems that are worth it; null for others.
// `careful`, which takes the same problem, computes what has infinite or tiny numbers in it.
std::unique_ptr<const ConvEngine> make_matrix_engine(const ConvShape& shape, const ConvCuts& cuts,
                                                     Rounding rounding, DType dtype, Isa isa,
                                                     std::unique_ptr<const ConvEngine>& careful);
// For few input channels, whose windows fill vectors better than they do; null for others.
std::unique_ptr<const ConvEngine> make_windows_engine(const ConvShape& shape, const ConvCuts& cuts,
                                                      Rounding rounding, DType dtype, Isa isa);
// Null where oneDNN is not built in, is not to be used on this instruction set, or refuses.
std::unique_ptr<const ConvEngine> make_onednn_engine(const ConvShape& shape, const ConvCuts& cuts,
                                                     DType dtype, Isa isa);
// Takes every problem.
std::unique_ptr<const ConvEngine> make_plain_engine(const ConvShape& shape);

}  // namespace backops
