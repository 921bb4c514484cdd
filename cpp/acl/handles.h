// Objects that programs know by their address. All that are alive are known, so a handle that was
// destroyed is told from one that was not.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace backops::acl {

template <class Object>
class Handles {
 public:
  Object* add(std::shared_ptr<Object> object) {
    Object* const handle = object.get();
    const std::lock_guard<std::shared_mutex> lock(mutex_);
    alive_.emplace(handle, std::move(object));
    return handle;
  }

  // Null for what is not alive. Whoever has it may use it, even while another thread destroys it.
  std::shared_ptr<Object> find(const void* handle) const {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto found = alive_.find(handle);
    return found == alive_.end() ? nullptr : found->second;
  }

  std::shared_ptr<Object> remove(const void* handle) {
    const std::lock_guard<std::shared_mutex> lock(mutex_);
    const auto found = alive_.find(handle);
    if (found == alive_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    alive_.erase(found);
    return object;
  }

  std::vector<std::shared_ptr<Object>> remove_all() {
    std::vector<std::shared_ptr<Object>> objects;
    const std::lock_guard<std::shared_mutex> lock(mutex_);
    for (auto& [handle, object] : alive_) objects.push_back(std::move(object));
    alive_.clear();
    return objects;
  }

  // The handles of one kind. Never cleaned up: programs may use them while they end.
  static Handles& all() {
    static Handles* const handles = new Handles;
    return *handles;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<const void*, std::shared_ptr<Object>> alive_;
};

}  // namespace backops::acl
