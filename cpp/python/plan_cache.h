// A bounded cache of plans.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace backops::python {

struct HashKey {
  template <std::size_t kFields>
  std::size_t operator()(const std::array<std::int64_t, kFields>& key) const {
    std::uint64_t hash = 14695981039346656037u;
    for (const std::int64_t value : key) {
      hash = (hash ^ static_cast<std::uint64_t>(value)) * 1099511628211u;
      hash ^= hash >> 29;
    }
    return static_cast<std::size_t>(hash);
  }
};

// The plans that were used last, for the operator functions.
template <class Key, class PlanType>
class PlanCache {
 public:
  using Plan = std::shared_ptr<const PlanType>;

  explicit PlanCache(std::size_t most_plans) : most_plans_(most_plans) {}

  Plan find(const Key& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    plans_.splice(plans_.begin(), plans_, found->second);
    return found->second->plan;
  }

  // `bytes`: what the plan holds, as far as it grows with shapes.
  void add(const Key& key, const Plan& plan, std::size_t bytes) {
    if (bytes > kMostBytes) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (places_.count(key) != 0) return;
    plans_.push_front({key, plan, bytes});
    places_.emplace(key, plans_.begin());
    bytes_ += bytes;
    while (plans_.size() > most_plans_ || bytes_ > kMostBytes) {
      bytes_ -= plans_.back().bytes;
      places_.erase(plans_.back().key);
      plans_.pop_back();
    }
  }

 private:
  static constexpr std::size_t kMostBytes = std::size_t{16} << 20;
  struct Entry {
    Key key;
    Plan plan;
    std::size_t bytes;
  };
  const std::size_t most_plans_;
  std::mutex mutex_;
  std::list<Entry> plans_;  // the last one used first
  std::unordered_map<Key, typename std::list<Entry>::iterator, HashKey> places_;
  std::size_t bytes_ = 0;
};

}  // namespace backops::python
