// The kernels of pairs against plain loops.
#include "kernels/pairs/pairs.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "tests/check.h"

namespace backops {
namespace {

using Bits = std::uint16_t;
constexpr float kUntouched = -77;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

Bits bfloat16(float number) {
  std::uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  return static_cast<Bits>(bits >> 16);
}
float number_of(Bits bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float number;
  std::memcpy(&number, &wide, sizeof number);
  return number;
}
// To the nearest, ties to even.
Bits rounded(float number) {
  std::uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  return static_cast<Bits>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
std::uint32_t pair_of(Bits first, Bits second) { return first | std::uint32_t{second} << 16; }
std::uint32_t bits_of(float pair) {
  std::uint32_t bits;
  std::memcpy(&bits, &pair, sizeof bits);
  return bits;
}

// Whole numbers, which sums of products have exactly.
std::vector<Bits> some_numbers(std::int64_t count) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::uniform_int_distribution<int> whole(-20, 20);
  std::vector<Bits> numbers(at(count));
  for (Bits& number : numbers) number = bfloat16(static_cast<float>(whole(random)));
  return numbers;
}

// Elements with these strides, in numbers, to pairs; nothing else is written.
void test_to_lanes(const PairKernels& k, std::int64_t channels, std::int64_t positions,
                   std::int64_t channel_step, std::int64_t position_step) {
  const std::int64_t width = k.conv.width, vectors = (channels + 2 * width - 1) / (2 * width);
  const std::int64_t vector_pitch = (positions + 1) * width;
  // As long as what may be read, and not a number longer.
  const std::vector<Bits> numbers =
      some_numbers((channels - 1) * channel_step + (positions - 1) * position_step + 1);
  std::vector<float> to(at(vectors * vector_pitch), kUntouched), expected = to;
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t c = 0; c < channels; c += 2) {
      const Bits* const own = &numbers[at(c * channel_step + p * position_step)];
      const std::uint32_t pair = pair_of(*own, c + 1 < channels ? own[channel_step] : Bits{0});
      const std::int64_t lane = c / 2;
      std::memcpy(&expected[at(lane / width * vector_pitch + p * width + lane % width)], &pair,
                  sizeof pair);
    }
  }
  k.conv.to_lanes({reinterpret_cast<char*>(const_cast<Bits*>(numbers.data())), 2 * channel_step,
                   2 * position_step, to.data(), width, vector_pitch, channels, positions});
  for (std::size_t i = 0; i < to.size(); ++i) CHECK_EQUAL(bits_of(to[i]), bits_of(expected[i]));
}

// `apart`: pairs on the left begin at any number, `pitch` numbers apart. Their sums are then asked
// for as numbers, too.
void test_products(const PairKernels& k, std::int64_t rows, int vectors, std::int64_t length,
                   bool apart, std::int64_t pitch) {
  const std::int64_t width = k.conv.width, step = vectors * width;
  const std::vector<Bits> left = some_numbers((rows - 1) * pitch + 2 * length + 1);
  const std::vector<Bits> right = some_numbers(2 * length * step);
  std::vector<float> sums(at(rows * step + 1), kUntouched);
  const BlockRun run{apart ? 1 : 0, 0};
  BlockProducts p{};
  p.left = left.data();
  p.right = right.data();
  p.runs = &run;
  p.run_count = 1;
  p.run_length = length;
  p.left_step = apart ? 2 : 1;
  p.left_pitch = pitch;
  p.right_step = step;
  p.right_pitch = width;
  p.sums = sums.data();
  p.sum_step = step;
  p.sum_pitch = width;
  p.rows = rows;
  p.vectors = vectors;
  (apart ? k.conv.multiply_apart : k.conv.multiply_positions)(p);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < step; ++column) {
      float expected = 0;
      for (std::int64_t i = 0; i < 2 * length; ++i) {
        expected += number_of(left[at(run.left + row * pitch + i)]) *
                    number_of(right[at((i / 2 * step + column) * 2 + i % 2)]);
      }
      CHECK_EQUAL(sums[at(row * step + column)], expected);
    }
  }
  CHECK_EQUAL(sums.back(), kUntouched);
  if (!apart) return;
  std::vector<Bits> numbers(sums.size(), bfloat16(kUntouched));
  p.sums = numbers.data();
  k.multiply_to_numbers(p);
  for (std::size_t i = 0; i < sums.size(); ++i) CHECK_EQUAL(numbers[i], rounded(sums[i]));
}

void test_pack(const PairKernels& k, std::int64_t pairs, std::int64_t vectors) {
  const std::int64_t width = vectors * k.conv.width;
  const std::vector<Bits> numbers = some_numbers(2 * pairs * width);
  std::vector<float> from, to(at(pairs * width + 1), kUntouched);
  for (const Bits number : numbers) from.push_back(number_of(number));
  k.pack({from.data(), width, pairs, width, to.data(), width});
  for (std::int64_t i = 0; i < pairs * width; ++i) {
    const Bits* const own = &numbers[at(i / width * 2 * width + i % width)];
    CHECK_EQUAL(bits_of(to[at(i)]), pair_of(own[0], own[width]));
  }
  CHECK_EQUAL(to.back(), kUntouched);
}

void test_join(const PairKernels& k, std::int64_t pairs, std::int64_t taps) {
  const std::int64_t width = k.conv.width, pitch = pairs * width;
  const std::vector<Bits> numbers = some_numbers(2 * pairs * taps * width);
  const auto number = [&](std::int64_t index, std::int64_t lane) {
    return numbers[at((index / 2 * width + lane) * 2 + index % 2)];
  };
  std::vector<float> words(numbers.size() / 2), to(at(taps * pitch + 1), kUntouched);
  std::memcpy(words.data(), numbers.data(), numbers.size() * sizeof(Bits));
  k.join({words.data(), width, pairs, taps, to.data(), pitch});
  for (std::int64_t i = 0; i < taps * pitch; ++i) {
    const std::int64_t first = 2 * (i % pitch / width) * taps + i / pitch, lane = i % width;
    CHECK_EQUAL(bits_of(to[at(i)]), pair_of(number(first, lane), number(first + taps, lane)));
  }
  CHECK_EQUAL(to.back(), kUntouched);
}

void test_pair(const PairKernels& k, std::int64_t count, std::int64_t step) {
  const std::vector<Bits> numbers = some_numbers(count + step);
  std::vector<float> to(at(count + 1), kUntouched);
  k.pair({reinterpret_cast<const BFloat16*>(numbers.data()), step, count, to.data()});
  for (std::int64_t i = 0; i < count; ++i) {
    CHECK_EQUAL(bits_of(to[at(i)]), pair_of(numbers[at(i)], numbers[at(i + step)]));
  }
  CHECK_EQUAL(to.back(), kUntouched);
}

// Several rows; nothing between them is written.
void test_pair_rows(const PairKernels& k, std::int64_t count, std::int64_t rows) {
  const std::int64_t step = count + 3, row_step = 2 * step, to_step = count + 1;
  const std::vector<Bits> numbers = some_numbers(rows * row_step + step + count);
  std::vector<float> to(at(rows * to_step), kUntouched);
  k.pair({reinterpret_cast<const BFloat16*>(numbers.data()), step, count, to.data(), rows, row_step,
          to_step});
  for (std::int64_t i = 0; i < rows * to_step; ++i) {
    const Bits* const own = &numbers[at(i / to_step * row_step + i % to_step)];
    const bool is_written = i % to_step < count;
    CHECK_EQUAL(bits_of(to[at(i)]), is_written ? pair_of(own[0], own[step]) : bits_of(kUntouched));
  }
}

// The largest and the smallest of some numbers, and of no others.
void test_watch(const PairKernels& k, std::int64_t count) {
  for (std::int64_t place = 0; place < count; ++place) {
    std::vector<Bits> numbers(at(count + 1), bfloat16(-3));
    numbers.back() = bfloat16(1e30f);
    for (const Bits extreme : {bfloat16(1e20f), bfloat16(-1e-38f), Bits{1}, Bits{0x8000}}) {
      numbers[at(place)] = extreme;
      PairMagnitudes found;
      k.watch({numbers.data(), count, &found});
      Bits least = UINT16_MAX, most = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        const auto magnitude = static_cast<Bits>(numbers[at(i)] & 0x7fff);
        least = std::min(least, static_cast<Bits>(magnitude - 1));
        most = std::max(most, magnitude);
      }
      CHECK_EQUAL(*std::min_element(found.least, found.least + PairMagnitudes::kLanes), least);
      CHECK_EQUAL(*std::max_element(found.most, found.most + PairMagnitudes::kLanes), most);
    }
  }
}

void test_kernels(const PairKernels& k) {
  const test::Situation situation("%s", k.conv.name);
  for (const std::int64_t channels : {1, 2, 5, 15, 16, 17, 31, 32, 33, 64, 70}) {
    for (const std::int64_t positions : {1, 2, 15, 16, 17, 33, 130}) {
      test_to_lanes(k, channels, positions, 1, channels);
      test_to_lanes(k, channels, positions, 1, channels + 3);
      test_to_lanes(k, channels, positions, positions, 1);
      test_to_lanes(k, channels, positions, 2 * positions + 1, 2);
    }
  }
  for (const std::int64_t rows : {1, 2, 13, 14, 15, 29}) {
    for (const int vectors : {1, 2}) {
      for (const std::int64_t length : {1, 3, 16}) {
        const std::int64_t pitch = 2 * k.conv.width;
        if (length <= k.conv.width) test_products(k, rows, vectors, length, false, pitch);
        for (const std::int64_t apart : {3, 6, 40}) {
          test_products(k, rows, vectors, length, true, apart);
        }
      }
    }
  }
  for (const std::int64_t pairs : {1, 2, 7}) {
    for (const std::int64_t vectors : {1, 2}) test_pack(k, pairs, vectors);
    for (const std::int64_t taps : {1, 2, 3, 9}) test_join(k, pairs, taps);
  }
  for (const std::int64_t count : {1, 31, 32, 33, 70}) {
    test_watch(k, count);
    for (const std::int64_t step : {1, 3, 40}) test_pair(k, count, step);
    for (const std::int64_t rows : {1, 2, 5}) test_pair_rows(k, count, rows);
  }
}

}  // namespace
}  // namespace backops

int main() {
  const backops::Cpu& cpu = backops::detected_cpu();
  if (!backops::has_pairs(cpu)) std::printf("this CPU has no products of pairs\n");
  for (const int width : {8, 16}) {
    const backops::PairKernels* const kernels = backops::pair_kernels(cpu, width);
    if (kernels != nullptr) backops::test_kernels(*kernels);
  }
  return backops::test::finish();
}
