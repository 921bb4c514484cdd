// Scratch memory for calls that come on any of many threads.
#pragma once

#include <cstddef>
#include <memory>

namespace backops::python {

// Memory that goes back to a common store when this ends: as many pieces are kept as calls ran at
// once, whichever threads they ran on. XLA has a thread per CPU, and any of them may call.
class Workspace {
 public:
  explicit Workspace(std::size_t bytes);  // throws std::bad_alloc
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  char* data() const { return memory_.get(); }

 private:
  std::unique_ptr<char[]> memory_;
  std::size_t bytes_;
};

}  // namespace backops::python
