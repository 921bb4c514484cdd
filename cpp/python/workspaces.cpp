#include "python/workspaces.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "python/results.h"

namespace backops::python {
namespace {

struct Piece {
  std::unique_ptr<char[]> memory;
  std::size_t bytes;
};

struct Store {
  std::mutex mutex;
  std::vector<Piece> pieces;  // the smallest first
};

// Never destroyed: XLA's threads may still run when the process ends.
Store& store() {
  static Store* const one = new Store;
  return *one;
}

bool is_smaller(const Piece& a, const Piece& b) { return a.bytes < b.bytes; }

}  // namespace

Workspace::Workspace(std::size_t bytes) : bytes_(bytes) {
  if (bytes <= kMostKeptBytes) {
    const std::lock_guard<std::mutex> lock(store().mutex);
    std::vector<Piece>& pieces = store().pieces;
    if (!pieces.empty()) {
      // The smallest that is large enough; otherwise the largest makes room for what is needed.
      auto found =
          std::lower_bound(pieces.begin(), pieces.end(), Piece{nullptr, bytes}, is_smaller);
      if (found == pieces.end()) --found;
      Piece piece = std::move(*found);
      pieces.erase(found);
      if (piece.bytes >= bytes) {
        memory_ = std::move(piece.memory);
        bytes_ = piece.bytes;
      }
    }
  }
  if (!memory_) memory_.reset(new char[bytes_]);
}

Workspace::~Workspace() {
  if (bytes_ > kMostKeptBytes) return;
  const std::lock_guard<std::mutex> lock(store().mutex);
  std::vector<Piece>& pieces = store().pieces;
  Piece piece{std::move(memory_), bytes_};
  const auto place = std::lower_bound(pieces.begin(), pieces.end(), piece, is_smaller);
  try {
    pieces.insert(place, std::move(piece));
  } catch (const std::bad_alloc&) {
    // Then it is not kept.
  }
}

}  // namespace backops::python
